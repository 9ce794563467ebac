"""Small named losses and dense helpers. All run under vmap: no branch, index or shape depends on a
tensor's value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _functorch

from raffed.core.params import Params


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """−(1/B) Σ_i log softmax(logits_i)[y_i]; logits [B, C], y [B] int64; nats. Of k clients [k], from [k,
    B, C] and [k, B].
    """
    if logits.dim() == 3 or _is_stacked(
        logits
    ):  # under vmap torch's own would run as a Python decomposition, and import sympy
        return mean_nll(F.log_softmax(logits, -1), y)
    return F.cross_entropy(logits, y)


def mean_nll(scores: Tensor, y: Tensor) -> Tensor:
    """−(1/B) Σ_i scores_i[y_i] of log-probabilities [..., B, C] and labels [..., B], one number a batch."""
    return -scores.gather(-1, y[..., None]).squeeze(-1).mean(-1)


def _is_stacked(x: Tensor) -> bool:
    """Whether vmap holds this tensor, under whatever transforms."""
    while _functorch.is_functorch_wrapped_tensor(x):
        if _functorch.is_batchedtensor(x):
            return True
        x = _functorch.get_unwrapped(x)
    return False


def one_hot(y: Tensor, classes: int) -> Tensor:
    """[B] int64 → [B, C] float32. A comparison: `F.one_hot` looks at values and fails under vmap."""
    return (y[:, None] == torch.arange(classes, device=y.device)).to(torch.float32)


def smooth_pull(a: Params, b: Params) -> Tensor:
    """Mean over tensors of the element-wise mean of smooth-L1(a − b), a 0-d tensor.

    MAP's released code has it in place of ½‖a − b‖²: its gradient is (a − b)/(numel · #tensors), 10² to 10⁷
    times weaker.
    """
    return torch.stack([F.smooth_l1_loss(a[name], b[name]) for name in a.names]).mean()


def mmd(h: Tensor, g: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples [B, D] with five Gaussian bands  (docs/papers/map.md
    §2.2, eq. 12).

        D_ij = ‖Z_i − Z_j‖² over Z = [h; g]; s = mean off-diagonal D, detached; bands s/4, s/2, s, 2s, 4s; the
        biased V-statistic mean(K_hh + K_gg − K_hg − K_gh).
    """
    between = _square_distances(torch.cat([h, g]))
    rows = between.shape[0]
    scale = between.detach().sum() / (rows * rows - rows) + 1e-8
    kernel = sum(torch.exp(-between / (scale / 4 * 2.0**i)) for i in range(5))
    assert isinstance(kernel, Tensor)
    b = h.shape[0]
    return (kernel[:b, :b] + kernel[b:, b:] - kernel[:b, b:] - kernel[b:, :b]).mean()


def _square_distances(z: Tensor) -> Tensor:
    """‖z_i − z_j‖² [n, n] of rows [n, D] as |z_i|² + |z_j|² − 2 z_i·z_j, which needs no [n, n, D].

    Rows are centred first: a common offset, which no distance depends on, would cost digits.
    """
    centred = z - z.detach().mean(0)
    products = centred @ centred.T
    squares = products.diagonal()
    return (squares[:, None] + squares[None, :] - 2.0 * products).clamp(min=0.0)


def momentum_sum(steps: int, momentum: float, pull: float = 0.0) -> float:
    """‖a‖₁ = Σ_{s=1..τ} (1 − ρ^s)/(1 − ρ): what τ steps with momentum ρ and a constant gradient g add up to,
    in η·g.

        τ where ρ = 0. The velocity is empty at the start, without dampening and Nesterov
        (docs/papers/baselines.md, FedNova). pull: ημ of a quadratic (μ/2) ‖w − w^t‖² whose gradient passes
        through the velocity; the steps are counted out then.
    """
    if pull:
        gone = velocity = 0.0
        for _ in range(steps):
            velocity = momentum * velocity + 1.0 - pull * gone
            gone += velocity
        return gone
    if momentum == 0.0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances [B, C] of rows a [B, D] and b [C, D], with a finite gradient at 0."""
    return ((a[:, None, :] - b[None, :, :]).square().sum(-1) + 1e-12).sqrt()

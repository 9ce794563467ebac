"""Small named losses and dense helper functions.

All of them run under vmap: no branch, index or shape depends on a tensor's value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _functorch

from raffed.core.params import Params

ROUNDING = 64  # units in the last place, by which two ways of computing one feature may differ


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy −(1/B) Σ_i log softmax(logits_i)[y_i] in nats.

    With label smoothing ε it is (1 − ε) times that plus ε times the mean of −log softmax over all classes, as
    torch's.

    Args:
        logits: Logits [B, C], or [k, B, C] of k clients.
        y: Labels [B] or [k, B], int64.
        smoothing: Label smoothing ε, in [0, 1].

    Returns:
        A tensor without dimensions, or [k] with one value for each client.
    """
    if smoothing:
        scores = F.log_softmax(logits, -1)
        return (1 - smoothing) * mean_nll(scores, y) - smoothing * scores.mean((-2, -1))
    # Under vmap, torch's own would run as a Python decomposition and import sympy
    if logits.dim() == 3 or is_stacked(logits):
        return mean_nll(F.log_softmax(logits, -1), y)
    return F.cross_entropy(logits, y)


def mean_nll(scores: Tensor, y: Tensor) -> Tensor:
    """Return −(1/B) Σ_i scores_i[y_i], one number per batch.

    Args:
        scores: Log-probabilities [..., B, C].
        y: Labels [..., B].
    """
    return -scores.gather(-1, y[..., None]).squeeze(-1).mean(-1)


def is_stacked(x: Tensor) -> bool:
    """Return whether vmap wraps this tensor, possibly below other transforms."""
    while _functorch.is_functorch_wrapped_tensor(x):
        if _functorch.is_batchedtensor(x):
            return True
        x = _functorch.get_unwrapped(x)
    return False


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Return labels [B] int64 as [B, C] float32.

    It compares, because `F.one_hot` looks at values and therefore fails under vmap.
    """
    return (y[:, None] == torch.arange(classes, device=y.device)).to(torch.float32)


def smooth_pull(a: Params, b: Params) -> Tensor:
    """Return the mean over tensors of the element-wise mean of smooth-L1(a − b), a tensor without dimensions.

    MAP's released code uses it in place of ½‖a − b‖². Its gradient is (a − b)/(numel · number of tensors),
    which is 10² to 10⁷ times weaker.
    """
    return torch.stack([F.smooth_l1_loss(a[name], b[name]) for name in a.names]).mean()


def mmd(h: Tensor, g: Tensor) -> Tensor:
    """Return the squared maximum mean discrepancy of two samples, with five Gaussian kernels.

    Source: docs/papers/map.md §2.2, eq. 12. With Z = [h; g], D_ij = ‖Z_i − Z_j‖² and s the mean of D off the
    diagonal, detached, the bandwidths are s/4, s/2, s, 2s and 4s. The result is the biased V-statistic
    mean(K_hh + K_gg − K_hg − K_gh).

    The bandwidth follows the data, so the gradient is about as large as 1/‖h − g‖ where B = 1. Therefore rows
    that differ by no more than rounding count as equal (`_apart`).

    Args:
        h: First sample [B, D].
        g: Second sample [B, D].
    """
    rows_of_both = torch.cat([h, g])
    between = _apart(_square_distances(rows_of_both), rows_of_both.detach())
    rows = between.shape[0]
    scale = between.detach().sum() / (rows * rows - rows) + 1e-8
    kernel = sum(torch.exp(-between / (scale / 4 * 2.0**i)) for i in range(5))
    assert isinstance(kernel, Tensor)
    b = h.shape[0]
    return (kernel[:b, :b] + kernel[b:, b:] - kernel[:b, b:] - kernel[b:, :b]).mean()


def _square_distances(z: Tensor) -> Tensor:
    """Return ‖z_i − z_j‖² [n, n] of rows [n, D] as |z_i|² + |z_j|² − 2 z_i·z_j, which needs no [n, n, D].

    Rows are centred first. No distance depends on a common offset, but it would cost digits.
    """
    centred = z - z.detach().mean(0)
    products = centred @ centred.T
    squares = products.diagonal()
    return (squares[:, None] + squares[None, :] - 2.0 * products).clamp(min=0.0)


def _apart(squares: Tensor, z: Tensor) -> Tensor:
    """Return squared distances [n, n] of rows z [n, D], with 0 where two rows differ only by rounding.

    One network computes one image's features twice with such differences, for example in stacks of clients.
    """
    sizes = z.square().sum(-1)
    rounding = (ROUNDING * torch.finfo(z.dtype).eps) ** 2 * (sizes[:, None] + sizes[None, :])
    return squares.masked_fill((squares > 0) & (squares <= rounding), 0.0)


def momentum_sum(steps: int, momentum: float, pull: float = 0.0, nesterov: bool = False) -> float:
    """Return ‖a‖₁ = Σ_{s=1..τ} (1 − ρ^s)/(1 − ρ), the effective number of steps under momentum.

    It is what τ steps with momentum ρ and a constant gradient g add up to, in units of η·g. The velocity is
    zero at the start, without dampening. With Nesterov's momentum a step is g + ρv, so they add up to τ + ρ
    times this sum. Source: docs/papers/baselines.md, FedNova.

    Args:
        steps: Number of steps τ.
        momentum: Momentum ρ. With ρ = 0 the result is τ.
        pull: ημ of a quadratic term (μ/2) ‖w − w^t‖² whose gradient passes through the velocity. If it is not
            0, the steps are simulated one by one.
        nesterov: Whether the momentum is Nesterov's.
    """
    if pull:
        gone = velocity = 0.0
        for _ in range(steps):
            slope = 1.0 - pull * gone
            velocity = momentum * velocity + slope
            gone += slope + momentum * velocity if nesterov else velocity
        return gone
    if momentum == 0.0:
        return float(steps)
    if nesterov:
        return steps + momentum * momentum_sum(steps, momentum)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return Euclidean distances [B, C] of rows a [B, D] and b [C, D], with a finite gradient at 0."""
    return ((a[:, None, :] - b[None, :, :]).square().sum(-1) + 1e-12).sqrt()


@dataclass(frozen=True)
class Criterion:
    """A loss by which clients learn instead of the cross-entropy.

    Attributes:
        function: Function from (logits [B, C], labels [B]) to a loss for each sample [B], or to their mean
            []. It is a dense function of tensors, so that it can also be called under vmap.
        name: What messages call it.
        counted: Whether the function also takes `class_counts`, the client's training samples of each class.
    """

    function: Callable[..., Tensor]
    name: str
    counted: bool = False

    def __call__(self, logits: Tensor, y: Tensor, class_counts: Tensor) -> Tensor:
        """Return the mean loss of a batch, a tensor without dimensions.

        Args:
            logits: Logits [B, C].
            y: Labels [B], int64.
            class_counts: The client's training samples of each class [C], int64.
        """
        counts = {"class_counts": class_counts} if self.counted else {}
        value = self.function(logits, y, **counts)
        return value.mean() if value.dim() else value

"""Deep leakage from gradients (Zhu et al. 2019) and iDLG (Zhao et al. 2020).

They search for an image whose gradient is the observed one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raffed.core import seeds
from raffed.core.params import Params

Distance = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Effort:
    """How hard an attacker tries.

    `iterations` counts outer iterations of L-BFGS, with up to 20 inner steps each. A restart succeeds if it
    ends well below `done`. It is given up once mean(x'²) exceeds `limit` or D is not a number.
    """

    iterations: int = 300
    restarts: int = 5
    done: float = 1e-6
    limit: float = 30.0
    lr: float = 1.0


@dataclass(frozen=True)
class Attempt:
    """The end of one restart.

    Attributes:
        image: The reconstruction [C, H, W], not clamped.
        label: The label it settled on.
        distance: D; ∞ if the restart diverged.
        trace: What `watch` returned after every iteration.
    """

    image: Tensor
    label: int
    distance: float
    trace: tuple[float, ...]

    @property
    def diverged(self) -> bool:
        return math.isinf(self.distance)

    def at(self, iteration: int) -> float:
        """Return the trace after an iteration, counted from 1. A restart that has ended keeps its
        last value.
        """
        return self.trace[min(iteration, len(self.trace)) - 1]


def gradient_distance(net: nn.Module, weights: Params, g: Params, label: int | None = None) -> Distance:
    """Return D(x' [1, C, H, W], u [classes]) = Σ_l ‖∇_{w_l} CE(A(x'), softmax(u)) − g_l‖² over the names of
    g.

    Args:
        net: The network A.
        weights: Everything that the attacker takes for the network's weights.
        g: The observed gradient.
        label: A known label, used in place of softmax(u) (iDLG).
    """
    fixed = {name: t for name, t in weights.tensors.items() if name not in g.names}

    def distance(x: Tensor, u: Tensor) -> Tensor:
        live = {name: weights[name].detach().requires_grad_() for name in g.names}
        logits, _ = functional_call(net, {**fixed, **live}, (x,))
        share = u.softmax(0) if label is None else (torch.arange(len(u)) == label).to(u.dtype)
        loss = -(share * logits[0].log_softmax(0)).sum()
        grads = torch.autograd.grad(loss, list(live.values()), create_graph=True)
        return torch.stack([(a - g[name]).square().sum() for name, a in zip(live, grads, strict=True)]).sum()

    return distance


def feature_distance(body: nn.Module, weights: Params, z: Tensor) -> Distance:
    """Return D(x', u) = ‖A_θ(x') − z‖² for a representation z [D] that was sent. u is not used.

    `weights` are those of the body.
    """
    inner = {name.removeprefix("body."): t for name, t in weights.tensors.items() if name.startswith("body.")}

    def distance(x: Tensor, u: Tensor) -> Tensor:
        found: Tensor = functional_call(body, inner, (x,))
        return (found[0] - z).square().sum()

    return distance


def reconstruct(
    distance: Distance,
    start: Sequence[tuple[Tensor, Tensor]],
    effort: Effort,
    watch: Callable[[Tensor], float],
) -> Attempt:
    """Return the restart with the smallest final D.

    Args:
        distance: D, which is minimised.
        start: x' [C, H, W] and u [classes] for every restart. Once one has reached `done`, the others are not
            tried.
        effort: How hard to try.
        watch: Called with every iterate, for the record only. The attacker sees D and never this.
    """
    best: Attempt | None = None
    for x, u in start[: effort.restarts]:
        attempt = _descend(distance, x, u, effort, watch)
        if best is None or attempt.distance < best.distance:
            best = attempt
        if best.distance < effort.done:
            break
    assert best is not None
    return best


def dummies(
    shape: Sequence[int], classes: int, count: int, seed: int, image: int
) -> list[tuple[Tensor, Tensor]]:
    """Return `count` starts for an image: x' ~ N(0, 1) of its shape and u ~ N(0, 1)^classes.

    They are the same for every attack.
    """
    draws = [seeds.generator(seed, "attack", image, restart) for restart in range(count)]
    return [(torch.randn(tuple(shape), generator=g), torch.randn(classes, generator=g)) for g in draws]


def _descend(
    distance: Distance, x: Tensor, u: Tensor, effort: Effort, watch: Callable[[Tensor], float]
) -> Attempt:
    """Minimise by L-BFGS as in mit-han-lab/dlg: no line search, history of 100, no clamping."""
    x, u = x[None].clone().requires_grad_(), u.clone().requires_grad_()
    rule, trace, last = torch.optim.LBFGS([x, u], lr=effort.lr), [], math.inf

    def closure() -> Tensor:
        value = distance(x, u)
        x.grad, u.grad = torch.autograd.grad(value, [x, u], materialize_grads=True)
        return value.detach()

    for _ in range(effort.iterations):
        rule.step(closure)  # type: ignore[no-untyped-call]
        trace.append(watch(x.detach()[0]))
        last = float(distance(x, u).detach())
        if not math.isfinite(last) or not float(x.detach().square().mean()) <= effort.limit:
            last = math.inf
            break
        if last < effort.done:
            break
    return Attempt(x.detach()[0], int(u.detach().argmax()), last, tuple(trace))

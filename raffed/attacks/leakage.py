"""Deep leakage from gradients (Zhu et al. 2019), iDLG (Zhao et al. 2020), and labels from gradients.

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
from raffed.core.messages import Wire
from raffed.core.params import Params, fields_of

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


# Infer the label from the gradient of one sample's cross-entropy with respect to the last layer s = W a +
# b.
#
# See docs/papers/mpfedcon.md §5.1. ∂L/∂s_k = p_k − 1[k = y], ∂L/∂b_k = p_k − 1[k = y], ∂L/∂W_k = (p_k − 1[k
# = y]) a. The rules work for batches of one sample, and only if the last layer's gradient is seen. If the
# output layer is withheld, the rows of the layer before it have no class.


def by_bias(bias: Tensor) -> int:
    """Return y, the only k with a negative entry in ∂b [C]. This needs no condition on a."""
    return int(bias.argmin())


def by_sign(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D] with the smallest sum (iDLG, Zhao et al. 2020).

    It is the only negative sum if a ≥ 0. The rule fails whenever Σ a < 0. With a signed activation (tanh, or
    MpFedcon's projection) this happens in about half of the cases.
    """
    return int(weight.sum(1).argmin())


def by_inner_product(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D], C ≥ 3, whose inner products with the others are negative.

    This needs no condition on a. The products of row y with all others add up to −(1 − p_y)² ‖a‖², and those
    of a row k ≠ y to −p_k² ‖a‖². With at least three classes p_k < 1 − p_y, so the smallest sum is that of y.
    """
    gram = weight.double() @ weight.double().T
    return int((gram.sum(1) - gram.diagonal()).argmin())


RULES: dict[str, Callable[[Params], int]] = {
    "bias": lambda g: by_bias(g["head.bias"]),
    "sign": lambda g: by_sign(g["head.weight"]),
    "inner product": lambda g: by_inner_product(g["head.weight"]),
}


def inferred(g: Params) -> dict[str, int]:
    """Return rule → label for the rules that the gradient's names allow; empty if the head was withheld."""
    needs = {"bias": "head.bias", "sign": "head.weight", "inner product": "head.weight"}
    return {name: rule(g) for name, rule in RULES.items() if needs[name] in g.names}


def told(slots: dict[str, Wire]) -> int | None:
    """Return the label that the messages beside the weights reveal: the only class with a count.

    Such messages are MpFedcon's centres and the prototypes of FedMR and FedProto. None if no message has
    counts.
    """
    for wire in slots.values():
        count = fields_of(wire).get("count")
        if isinstance(count, Tensor) and int(torch.count_nonzero(count)) == 1:
            return int(count.argmax())
    return None

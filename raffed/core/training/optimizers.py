"""The optimisers of local training, with the arithmetic of `torch.optim` without its fused and foreach forms.

An optimiser is a value that holds its arguments. Its state, the moments, is held by whoever trains. Weights
and moments are changed in place. The same code steps one client or a stack of them: then every tensor has a
first axis of clients [g, ...], and the rate and the number of the step may differ between clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from raffed.config import training as arguments
from raffed.config.training import OPTIMIZERS
from raffed.config.validation import Value

# Arithmetic on lists of tensors in place, for one client or for a stack with a number for each client.


Scalar: TypeAlias = float | Tensor  # one number, or [g], one for each client of a stack
Tensors: TypeAlias = list[Tensor]


def fused_step(
    weights: Tensors,
    grads: Tensors,
    velocity: Tensors,
    lr: float,
    momentum: float,
    decay: float,
    nesterov: bool = False,
    first: bool = False,
) -> None:
    """Make a step of `SgdRule` in place, with one kernel for all tensors.

    Args:
        weights: The weights w.
        grads: The gradients g.
        velocity: The velocities v, or an empty list without momentum.
        lr: Learning rate η.
        momentum: Momentum ρ.
        decay: Weight decay wd.
        nesterov: Whether the momentum is Nesterov's.
        first: Whether the numbers in v do not count, and v becomes g + wd·w.
    """
    ordered = [g.contiguous() for g in grads]  # the kernel reads memory in order and ignores strides
    torch._fused_sgd_(
        weights,
        ordered,
        velocity,
        weight_decay=decay,
        momentum=momentum,
        lr=lr,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
        is_first_step=first and bool(velocity),  # without velocities it has no effect, and CUDA warns
    )


def decayed(grads: Tensors, weights: Tensors, decay: float) -> Tensors:
    """Return g + wd·w, or the gradients themselves without weight decay."""
    return list(torch._foreach_add(grads, weights, alpha=decay)) if decay else grads


def each(number: Scalar, like: Tensors) -> Tensors:
    """Return a number for each client [g] in the shape in which it meets each tensor [g, ...]."""
    assert isinstance(number, Tensor)
    return [number.to(t.device, t.dtype).view(-1, *(1,) * (t.dim() - 1)) for t in like]


def multiply_(tensors: Tensors, by: Scalar) -> None:
    """Multiply tensors by a number, or by one for each client, in place."""
    torch._foreach_mul_(tensors, by if isinstance(by, float) else each(by, tensors))


def divide_(tensors: Tensors, by: Scalar) -> None:
    """Divide tensors by a number, or by one for each client, in place."""
    torch._foreach_div_(tensors, by if isinstance(by, float) else each(by, tensors))


def subtract_(weights: Tensors, above: Tensors, below: Tensors, rate: Scalar) -> None:
    """w ← w − rate · above / below."""
    if isinstance(rate, float):
        torch._foreach_addcdiv_(weights, above, below, -rate)
        return
    moved = torch._foreach_div(above, below)
    torch._foreach_mul_(moved, each(rate, weights))
    torch._foreach_sub_(weights, moved)


Moments: TypeAlias = dict[str, list[Tensor]]  # name of a moment → a tensor for each weight


class Optimizer:
    """How weights are stepped along gradients.

    Attributes:
        counts: Whether a step depends on its number, apart from the first one.
    """

    counts: ClassVar[bool] = True

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of the tensors that it remembers for every weight; empty if it remembers nothing."""
        return ()

    def begin(self, weights: Sequence[Tensor]) -> Moments:
        """Return the moments before the first step.

        Args:
            weights: The weights that are going to be stepped.
        """
        return {name: [torch.zeros_like(w) for w in weights] for name in self.moments}

    def step(
        self,
        weights: Tensors,
        grads: Tensors,
        moments: Moments,
        lr: Scalar,
        decay: float,
        count: Scalar,
        fresh: bool = False,
    ) -> None:
        """Change weights and moments in place by one step.

        Args:
            weights: The weights w.
            grads: The gradients g. They are left as they are.
            moments: What `begin` returned, as earlier steps have changed it.
            lr: Learning rate η of this step.
            decay: Weight decay.
            count: Number of this step, counted from 1.
            fresh: Whether no step has been made with these moments, for one client alone.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SgdRule(Optimizer):
    """v ← ρ v + (g + wd·w), w ← w − η v; with Nesterov's momentum w ← w − η (g + wd·w + ρ v)."""

    counts: ClassVar[bool] = False
    momentum: float
    nesterov: bool = False

    @property
    def moments(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def step(
        self,
        weights: Tensors,
        grads: Tensors,
        moments: Moments,
        lr: Scalar,
        decay: float,
        count: Scalar,
        fresh: bool = False,
    ) -> None:
        velocity = moments.get("velocity", [])
        if isinstance(lr, float):
            fused_step(weights, grads, velocity, lr, self.momentum, decay, self.nesterov, fresh)
            return
        moved = decayed(grads, weights, decay)
        if velocity:
            torch._foreach_mul_(velocity, self.momentum)
            torch._foreach_add_(velocity, moved)
            moved = (
                list(torch._foreach_add(moved, velocity, alpha=self.momentum)) if self.nesterov else velocity
            )
        torch._foreach_sub_(weights, torch._foreach_mul(moved, each(lr, weights)))


@dataclass(frozen=True)
class AdamRule(Optimizer):
    """m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², w ← w − η m̂ / (√v̂ + ε), with corrected m̂ and v̂.

    Decoupled, the weights are first multiplied by 1 − η·wd. Otherwise wd·w is added to g.
    """

    given: arguments.Adam
    decoupled: bool = False

    @property
    def moments(self) -> tuple[str, ...]:
        return ("mean", "square", *(["largest"] if self.given.amsgrad else []))

    def step(
        self,
        weights: Tensors,
        grads: Tensors,
        moments: Moments,
        lr: Scalar,
        decay: float,
        count: Scalar,
        fresh: bool = False,
    ) -> None:
        beta1, beta2, mean, square = self.given.beta1, self.given.beta2, moments["mean"], moments["square"]
        if self.decoupled and decay:
            multiply_(weights, 1 - lr * decay)
        elif decay:
            grads = decayed(grads, weights, decay)
        torch._foreach_lerp_(mean, grads, 1 - beta1)
        torch._foreach_mul_(square, beta2)
        torch._foreach_addcmul_(square, grads, grads, 1 - beta2)
        if self.given.amsgrad:
            torch._foreach_maximum_(moments["largest"], square)
            square = moments["largest"]
        below = list(torch._foreach_sqrt(square))
        divide_(below, (1 - beta2**count) ** 0.5)
        torch._foreach_add_(below, self.given.eps)
        subtract_(weights, mean, below, lr / (1 - beta1**count))


@dataclass(frozen=True)
class RMSpropRule(Optimizer):
    """v ← α v + (1 − α) g², w ← w − η g / (√v + ε); centred, v − m² with the mean m of g takes v's place."""

    counts: ClassVar[bool] = False
    given: arguments.RMSprop

    @property
    def moments(self) -> tuple[str, ...]:
        mean, velocity = ["mean"] * self.given.centered, ["velocity"] * bool(self.given.momentum)
        return ("square", *mean, *velocity)

    def step(
        self,
        weights: Tensors,
        grads: Tensors,
        moments: Moments,
        lr: Scalar,
        decay: float,
        count: Scalar,
        fresh: bool = False,
    ) -> None:
        alpha, square = self.given.alpha, moments["square"]
        grads = decayed(grads, weights, decay)
        torch._foreach_mul_(square, alpha)
        torch._foreach_addcmul_(square, grads, grads, 1 - alpha)
        if self.given.centered:
            mean = moments["mean"]
            torch._foreach_lerp_(mean, grads, 1 - alpha)
            below = list(torch._foreach_sqrt(torch._foreach_addcmul(square, mean, mean, -1)))
        else:
            below = list(torch._foreach_sqrt(square))
        torch._foreach_add_(below, self.given.eps)
        if not self.given.momentum:
            subtract_(weights, grads, below, lr)
            return
        velocity = moments["velocity"]
        torch._foreach_mul_(velocity, self.given.momentum)
        torch._foreach_addcdiv_(velocity, grads, below)
        if isinstance(lr, float):
            torch._foreach_add_(weights, velocity, alpha=-lr)
        else:
            torch._foreach_sub_(weights, torch._foreach_mul(velocity, each(lr, weights)))


@dataclass(frozen=True)
class AdagradRule(Optimizer):
    """s ← s + g², w ← w − η_s g / (√s + ε) with η_s = η / (1 + (step − 1) · lr_decay)."""

    given: arguments.Adagrad

    @property
    def moments(self) -> tuple[str, ...]:
        return ("total",)

    def begin(self, weights: Sequence[Tensor]) -> Moments:
        return {"total": [torch.full_like(w, self.given.initial) for w in weights]}

    def step(
        self,
        weights: Tensors,
        grads: Tensors,
        moments: Moments,
        lr: Scalar,
        decay: float,
        count: Scalar,
        fresh: bool = False,
    ) -> None:
        total, rate = moments["total"], lr / (1 + (count - 1) * self.given.lr_decay)
        grads = decayed(grads, weights, decay)
        torch._foreach_addcmul_(total, grads, grads, 1)
        below = list(torch._foreach_sqrt(total))
        torch._foreach_add_(below, self.given.eps)
        subtract_(weights, grads, below, rate)


def _sgd(given: arguments.Arguments, momentum: float) -> Optimizer:
    assert isinstance(given, arguments.Sgd)
    return SgdRule(momentum, given.nesterov and momentum > 0)


def _adam(given: arguments.Arguments, _: float) -> Optimizer:
    assert isinstance(given, arguments.Adam)
    return AdamRule(given, isinstance(given, arguments.AdamW))


def _rmsprop(given: arguments.Arguments, _: float) -> Optimizer:
    assert isinstance(given, arguments.RMSprop)
    return RMSpropRule(given)


def _adagrad(given: arguments.Arguments, _: float) -> Optimizer:
    assert isinstance(given, arguments.Adagrad)
    return AdagradRule(given)


MAKERS: dict[str, Callable[[arguments.Arguments, float], Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
}


def make_optimizer(name: str, given: Mapping[str, Value], momentum: float) -> Optimizer:
    """Return an optimiser.

    Args:
        name: One of OPTIMIZERS.
        given: Its arguments, which have been checked.
        momentum: Momentum of SGD; the others have none or their own.
    """
    kind: Callable[..., arguments.Arguments] = OPTIMIZERS[name]
    return MAKERS[name](kind(**given), momentum)

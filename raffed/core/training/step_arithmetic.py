"""Arithmetic on lists of tensors in place, for one client or for a stack with a number for each client."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

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


def each(one: Scalar, like: Tensors) -> Tensors:
    """Return a number for each client [g] in the shape in which it meets each tensor [g, ...]."""
    assert isinstance(one, Tensor)
    return [one.to(t.device, t.dtype).view(-1, *(1,) * (t.dim() - 1)) for t in like]


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

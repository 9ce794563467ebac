"""The one training loop: a stream of batches, an objective, SGD with momentum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raffed.core.context import ClientData, Forward
from raffed.core.local import Local
from raffed.core.method import Part
from raffed.core.network import Network
from raffed.core.params import Params, State

Augment = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Solver:
    """SGD for one stretch of training; velocity empty at its start, no dampening, no Nesterov."""

    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None = None


@dataclass(frozen=True)
class Trained:
    """loss: mean over the samples seen, as trained (all terms)."""

    state: State
    loss: float
    steps: int


def batch_stream(n: int, steps: int, local: Local, generator: torch.Generator) -> list[Tensor]:
    """Index batches: the data shuffled anew for every epoch until there are `steps` of them."""
    batches: list[Tensor] = []
    whole = local.drop_last and n >= local.batch_size
    used = n - n % local.batch_size if whole else n
    while len(batches) < steps:
        order = torch.randperm(n, generator=generator)
        batches.extend(torch.split(order[:used], local.batch_size))
    return batches[:steps]


def sgd(
    net: Network,
    start: State,
    objective: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    solver: Solver,
    *,
    part: Part = "all",
    correct: Callable[[Params], Params] | None = None,
    augment: Augment | None = None,
) -> Trained:
    """Train a copy of `start`, one step a batch; `objective(forward, step)` is minimised, `correct` bends its gradient.

    v ← ρ v + (g + wd·w), w ← w − η v. All tensors are updated by one fused kernel.
    """
    net.load(start)
    leaves = net.leaves(part)
    names, live = list(leaves), list(leaves.values())
    weights = [p.detach() for p in live]
    velocity = [torch.empty_like(w) for w in weights] if solver.momentum else []
    total = torch.zeros((), device=net.device)
    for step, index in enumerate(batches):
        x, y = taken(data.x, index), data.y.index_select(0, index)
        f = net.forward(x if augment is None else augment(x), y)
        loss = objective(f, step)
        grads = list(torch.autograd.grad(loss, live, materialize_grads=True))
        if solver.clip_norm is not None:
            grads = _clipped(grads, solver.clip_norm)
        if correct is not None:
            grads = list(correct(Params(dict(zip(names, grads, strict=True)))).tensors.values())
        fused_step(weights, grads, velocity, solver, first=step == 0)
        total += loss.detach() * len(y)
    seen = sum(index.numel() for index in batches)
    return Trained(net.snapshot(), float(total) / seen if seen else 0.0, len(batches))


def fused_step(weights: list[Tensor], grads: list[Tensor], velocity: list[Tensor], solver: Solver, first: bool = False) -> None:
    """v ← ρ v + (g + wd·w), w ← w − η v in place, one kernel for all tensors; `first`: v is empty memory and becomes g + wd·w."""
    ordered = [g.contiguous() for g in grads]  # the kernel reads memory in order, whatever the strides say
    torch._fused_sgd_(
        weights, ordered, velocity,
        weight_decay=solver.weight_decay, momentum=solver.momentum, lr=solver.lr,
        dampening=0.0, nesterov=False, maximize=False, is_first_step=first,
    )  # fmt: skip


def taken(x: Tensor, index: Tensor) -> Tensor:
    """The rows x[index], in x's memory format: indexing alone would turn channels-last images into channels-first ones."""
    if x.dim() == 4 and x.stride(1) == 1:
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


def _clipped(grads: list[Tensor], limit: float) -> list[Tensor]:
    norm = torch.nn.utils.get_total_norm(grads)
    return torch._foreach_mul(grads, torch.clamp(limit / (norm + 1e-6), max=1.0))  # type: ignore[return-value]

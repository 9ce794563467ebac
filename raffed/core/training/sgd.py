"""The one training loop: a stream of batches, an objective, SGD with momentum."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import NOTHING, ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.params import Params, State
from raffed.core.parts import Part
from raffed.core.training.network import Network

Augment = Callable[[Tensor], Tensor]
UpdateGates = Callable[[Params, Params, float, Tensor], Params]
RESTING_CHUNK = 64  # samples: larger ones leave the processor's cache


@dataclass(frozen=True)
class Solver:
    """SGD for one stretch of training; velocity empty at its start, no dampening, no Nesterov."""

    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None = None


@dataclass(frozen=True)
class Trained:
    """loss: mean over the samples seen, as trained (all terms). noted: by slot, the sums of what terms
    noted (Term.note).
    """

    state: State
    loss: float
    steps: int
    own: Params = NOTHING
    carried: Any = None
    noted: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What is trained beside the network: parameters, of them the `gates`, and how those are turned
    (Personal.update_gates).

        jointly: clipped together with the network, by one norm of both, and not apart from it.
    """

    own: Params
    gates: tuple[str, ...] = ()
    update_gates: UpdateGates | None = None
    jointly: bool = False


def batch_stream(n: int, steps: int, local: Local, generator: torch.Generator) -> list[Tensor]:
    """Index batches: the data shuffled anew for every epoch until there are `steps` of them."""
    batches: list[Tensor] = []
    size = local.batch_size
    used = n - n % size if local.drop_last and n >= size else n
    while len(batches) < steps:
        order = torch.randperm(n, generator=generator)
        batches.extend(
            (order if used == n else order[:used]).unsafe_split(size)
        )  # `split` tracks writes, there are none
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
    beside: Beside | None = None,
    cross_entropy_only: bool = False,
) -> Trained:
    """Train a copy of `start`, one step a batch; `objective(forward, step)` is minimised, `correct` bends its
    gradient.

        `cross_entropy_only`: the objective is the cross-entropy and nothing else, whose gradient some
        networks have without a graph.

        `beside` is trained by the same solver, clipped on its own (or `jointly`) and never corrected; its
        gates have a rule of their own. Where the layers below `part` rest and the images are the same in
        every epoch, those layers are applied once, not every step.

        v ← ρ v + (g + wd·w), w ← w − η v. All tensors are updated by one fused kernel.
    """
    leaves = net.leaves(part)
    entrance, rested = resting_layers(net, start, data, batches, part, augment is not None)
    net.load(start)
    names, live = list(leaves), list(leaves.values())
    companion = _Companion(beside)
    weights = [p.detach() for p in (*live, *companion.stepped.values())]
    velocity = [torch.empty_like(w) for w in weights] if solver.momentum else []
    losses: list[Tensor] = []
    direct = cross_entropy_only and net.written_out and not entrance and beside is None
    for step, index in enumerate(_placed(batches, data.y.device)):
        x, y = taken(data.x, index), data.y.index_select(0, index)
        x = x if augment is None else augment(x)
        if direct:
            loss, grads = net.gradients(x, y, names)
        else:
            f = net.forward(x, y, None if rested is None else rested.index_select(0, index), entrance)
            loss = objective(replace(f, own=companion.params) if beside else f, step)
            grads = list(torch.autograd.grad(loss, [*live, *companion.live], materialize_grads=True))
        grads, theirs = _bounded(grads, len(live), solver.clip_norm, beside)
        if correct is not None:
            grads = list(correct(Params(dict(zip(names, grads, strict=True)))).tensors.values())
        grads += companion.turned(theirs, solver.lr, step)
        fused_step(weights, grads, velocity, solver, first=step == 0)
        losses.append(loss.detach())
    own = companion.params.clone() if beside else NOTHING
    return Trained(net.snapshot(), _mean_loss(losses, batches), len(batches), own)


def _placed(batches: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Index batches, which are drawn on the CPU, on the data's device: moved in one piece, once a stretch."""
    if device.type == "cpu" or not batches:
        return batches
    return torch.split(torch.cat(list(batches)).to(device), [index.numel() for index in batches])


def _mean_loss(losses: list[Tensor], batches: Sequence[Tensor]) -> float:
    """Mean over the samples of the batches' mean losses; taken at the end, so that no step waits for a
    number.
    """
    if not losses:
        return 0.0
    sizes = [index.numel() for index in batches]
    weighed = list(map(operator.mul, torch.stack(losses).tolist(), sizes))
    return (math.fsum if all(map(math.isfinite, weighed)) else sum)(weighed) / sum(
        sizes
    )  # fsum refuses inf − inf


def resting_layers(
    net: Network, start: State, data: ClientData, batches: Sequence[Tensor], part: Part, augmented: bool
) -> tuple[str, Tensor | None]:
    """Where the steps enter the network, and what the layers below make of the client's data; "", None: at
    the images.

        Not with augmentation, and not where the steps see fewer samples than there are.
    """
    entrance = "" if augmented else net.entrance(part)
    if not entrance or sum(index.numel() for index in batches) < data.n:
        return "", None
    return entrance, net.rested(start, data.x, entrance, RESTING_CHUNK)


def fused_step(
    weights: list[Tensor], grads: list[Tensor], velocity: list[Tensor], solver: Solver, first: bool = False
) -> None:
    """v ← ρ v + (g + wd·w), w ← w − η v in place, one kernel for all tensors; `first`: v is empty memory
    and becomes g + wd·w.
    """
    ordered = [g.contiguous() for g in grads]  # the kernel reads memory in order, whatever the strides say
    torch._fused_sgd_(
        weights,
        ordered,
        velocity,
        weight_decay=solver.weight_decay,
        momentum=solver.momentum,
        lr=solver.lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=first,
    )


def taken(x: Tensor, index: Tensor) -> Tensor:
    """The rows x[index], in x's memory format: indexing alone would turn channels-last images into
    channels-first ones.
    """
    if x.dim() == 4 and x.stride(1) == 1:
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


def solve(
    net: Network,
    rule: LocalSolver,
    k: Context,
    objective: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    clip_norm: float | None = None,
    augment: Augment | None = None,
) -> Trained:
    """Train by a rule of its own: `rule.step` on groups of `rule.batches()` batches, each prepared once a
    step.
    """
    carried, losses, per = rule.begin(k), [], rule.batches()
    placed = _placed(batches, data.y.device)
    for first in range(0, len(placed), per):
        group = [
            (taken(data.x, index), data.y.index_select(0, index)) for index in placed[first : first + per]
        ]
        ready = [(x if augment is None else augment(x), y) for x, y in group]

        def gradient(
            state: State, which: int, ready: list[Any] = ready, step: int = first // per
        ) -> tuple[Params, Params]:
            net.load(state)
            leaves = net.leaves("all")
            loss = objective(net.forward(*ready[which]), step)
            grads = list(torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
            losses.append(loss.detach())
            if clip_norm is not None:
                grads = _clipped(grads, clip_norm)
            return Params(dict(zip(leaves, grads, strict=True))).clone(), net.snapshot().b

        carried = rule.step(carried, gradient, k)
    loss = float(torch.stack(losses).mean()) if losses else 0.0
    return Trained(rule.end(carried), loss, len(batches), carried=carried)


class _Companion:
    """The live parameters of a `Beside`, those that the solver steps first, the gates last."""

    def __init__(self, beside: Beside | None) -> None:
        self._beside = beside or Beside(NOTHING)
        own = {name: t.detach().clone().requires_grad_() for name, t in self._beside.own.tensors.items()}
        self.params = Params(own)
        self.stepped = {name: t for name, t in own.items() if name not in self._beside.gates}
        self._gates = {name: own[name] for name in self._beside.gates}
        self.live = [*self.stepped.values(), *self._gates.values()]

    def turned(self, grads: list[Tensor], lr: float, step: int) -> list[Tensor]:
        """Turn the gates; the gradients of the others."""
        stepped, slope = (
            grads[: len(self.stepped)],
            dict(zip(self._gates, grads[len(self.stepped) :], strict=True)),
        )
        if self._gates and self._beside.update_gates is not None:
            now = Params({name: t.detach() for name, t in self._gates.items()})
            for name, value in self._beside.update_gates(
                now, Params(slope), lr, torch.tensor(step, device=now.device)
            ).tensors.items():
                self._gates[name].data.copy_(value)
        return stepped


def _bounded(
    grads: list[Tensor], own: int, limit: float | None, beside: Beside | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The network's gradients, which are the first `own`, and the companion's, clipped at norm `limit`:
    apart or jointly.
    """
    if limit is None:
        return grads[:own], grads[own:]
    if beside is not None and beside.jointly:
        grads = _clipped(grads, limit)
        return grads[:own], grads[own:]
    return _clipped(grads[:own], limit), _clipped(grads[own:], limit)


def _clipped(grads: list[Tensor], limit: float) -> list[Tensor]:
    if not grads:
        return grads
    norm = torch.nn.utils.get_total_norm(grads)
    return list(torch._foreach_mul(grads, torch.clamp(limit / (norm + 1e-6), max=1.0)))

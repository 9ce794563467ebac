"""The one training loop: a stream of batches, an objective, and an optimiser."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.training import Local
from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.context import NOTHING, ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.ingredients.base import fault
from raffed.core.params import Params, Record, State
from raffed.core.parts import Part
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import NEVER, KeptPhase, RecordedSteps, recorded_steps
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    Solver,
    Stepper,
    Trained,
    TrainingPhase,
    add_notes,
    draws_of,
    name_of,
    notes_of,
    with_draws,
)

RESTING_CHUNK = 64  # samples; larger chunks leave the processor's cache


class Batch(NamedTuple):
    """What a step gets that is another in every step.

    Attributes:
        x: Inputs [B, ...].
        y: Labels [B].
        rested: What the layers below the trained part make of x, or None.
        uniform: Random numbers of the dropout layers, if they are drawn beforehand.
        drawn: Random numbers of the terms, by slot.
    """

    x: Tensor
    y: Tensor
    rested: Tensor | None
    uniform: list[Tensor]
    drawn: dict[str, Tensor]


def batch_stream(n: int, steps: int, local: Local, generator: torch.Generator) -> list[Tensor]:
    """Return `steps` batches of indices. The data are shuffled again for every epoch."""
    batches: list[Tensor] = []
    size = local.batch_size
    used = n - n % size if local.drop_last and n >= size else n
    while len(batches) < steps:
        order = torch.randperm(n, generator=generator)
        batches.extend(
            (order if used == n else order[:used]).unsafe_split(size)
        )  # `split` would track writes, and there are none
    return batches[:steps]


class SgdPhase:
    """One client's training phase, with one step of the optimiser per batch.

    If the layers below the trained part are not trained and the images are the same in every epoch, these
    layers are applied only once.

    Args:
        net: The network, whose scratch copy is trained.
        task: What is minimised, by which optimiser, and how the steps are corrected.
        phase: The client's start, batches, data and random streams.
        augmentation: A change of the images of a batch, or None. It needs the phase's stream.
    """

    def __init__(
        self, net: Network, task: ClientTask, phase: TrainingPhase, augmentation: Augmentation | None = None
    ) -> None:
        self.net, self.task, self.phase, self.augmentation = net, task, phase, augmentation
        part, augmented = task.part, augmentation is not None and phase.augment is not None
        leaves = net.leaves(part)
        self.entrance, self.rested = resting_layers(
            net, phase.start, phase.data, phase.batches, part, augmented
        )
        net.load(phase.start)
        net.noise.generator = phase.dropout
        self.names, self.live = list(leaves), list(leaves.values())
        self.companion = _Companion(task, phase.own)
        self.weights = [p.detach() for p in self.live]
        moving = [*self.weights, *(p.detach() for p in self.companion.stepped.values())]
        net.check_trained(moving, part)
        # Some networks compute the gradient of the cross-entropy without a graph
        self.written_out = (
            task.cross_entropy_only and net.written_out and not self.entrance and phase.own is None
        )
        self.repeats = name_of(task, [phase])
        self.kept = self._kept(moving)
        self.recorded = self._recorded() if self.kept is None else self.kept.steps
        moments = None if self.kept is None else self.kept.moments
        names = [*self.names, *self.companion.names]
        self.stepper = Stepper(task.solver, moving, names, phase.optimizer, moments)
        self.noted: dict[str, Tensor] = {}

    def run(self) -> Trained:
        """Make all steps, and return the result."""
        solver, batches, rates = self.task.solver, self.phase.batches, self.phase.rates
        # The usual case does without what small networks would notice
        make = self._step if self.recorded is NEVER else self._recorded_step
        losses: list[Tensor] = []
        for step, index in enumerate(placed(batches, self.phase.data.y.device)):
            batch, rate = self._batch(index), solver.lr if rates is None else rates[step]
            self.stepper.begin()
            losses.append(make(rate, step, batch))
        return Trained(
            self.net.snapshot(),
            _mean_loss(losses, batches),
            len(batches),
            NOTHING if self.phase.own is None else self.companion.params.clone(),
            noted=self.noted,
            optimizer=self.stepper.state() if solver.kept else None,
        )

    def _batch(self, index: Tensor) -> Batch:
        """Return a batch with its random numbers, each from a stream of the client's own."""
        data, stream = self.phase.data, self.phase.augment
        x, y = taken(data.x, index), data.y.index_select(0, index)
        if self.augmentation is not None and stream is not None:
            x = self.augmentation(x, stream)
        rested = None if self.rested is None else self.rested.index_select(0, index)
        uniform = [] if self.recorded is NEVER else self.net.dropout_draws(x)
        drawn = draws_of(self.task, self.phase, len(y)) if self.task.draws else {}
        return Batch(x, y, rested, uniform, {slot: t.to(y.device) for slot, t in drawn.items()})

    def _step(self, rate: float, step: int, batch: Batch) -> Tensor:
        """Make one step: the gradients, their bounds and correction, then the optimiser's move."""
        loss, grads = self._gradients(batch)
        grads, theirs = self._bounded(grads)
        if self.task.correct is not None:
            grads = self._corrected(grads)
        self.stepper.step([*grads, *self.companion.turned(theirs, rate, step)], rate)
        if self.task.after_step is not None:
            self._move_after_step(rate)
        return loss.detach()

    def _gradients(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Return the objective, and the gradients of the trained weights and of the companion."""
        if self.written_out:
            return self.net.gradients(batch.x, batch.y, self.names)
        task, views = self.task, self.phase.views
        with self.net.noise.given(batch.uniform) if batch.uniform else nullcontext():
            f = self.net.forward(batch.x, batch.y, batch.rested, self.entrance)
        if self.phase.own is not None:
            f = replace(f, own=self.companion.params)
        if task.notes:
            add_notes(self.noted, notes_of(task, f, views))
        loss = task.objective(f, with_draws(views, batch.drawn))
        grads = torch.autograd.grad(loss, [*self.live, *self.companion.live], materialize_grads=True)
        return loss, list(grads)

    def _bounded(self, grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Clip the network's gradients and the companion's, which come after them.

        By their norm they are clipped separately or jointly.
        """
        solver, count = self.task.solver, len(self.live)
        if solver.clip_value is not None:
            grads = clipped_values(grads, solver.clip_value)
        limit = solver.clip_norm
        if limit is None:
            return grads[:count], grads[count:]
        if self.task.jointly:
            grads = clipped(grads, limit)
            return grads[:count], grads[count:]
        return clipped(grads[:count], limit), clipped(grads[count:], limit)

    def _corrected(self, grads: list[Tensor]) -> list[Tensor]:
        """Return the gradients as the method's correction changes them."""
        assert self.task.correct is not None
        g = Params(dict(zip(self.names, grads, strict=True)))
        w = Params({name: t.detach() for name, t in zip(self.names, self.live, strict=True)})
        changed = self.task.correct(g, w, self.phase.views).tensors
        return [changed[name] for name in self.names]

    def _move_after_step(self, rate: float) -> None:
        """Move the weights as the method's correction asks, after the optimiser's step."""
        assert self.task.after_step is not None
        w = Params(dict(zip(self.names, self.weights, strict=True)))
        moved = self.task.after_step(w, rate, self.phase.views).tensors
        for name, weight in zip(self.names, self.weights, strict=True):
            weight.copy_(moved[name])

    def _recorded_step(self, rate: float, step: int, batch: Batch) -> Tensor:
        """Make a step that a GPU records once and then repeats (recorded_steps.py)."""
        size = len(batch.y)
        # A first step begins the velocity, which a recording for all clients must not mix up with others
        kind = (size, rate) if self.kept is None else (size, rate, step == 0)
        return self.recorded.make(kind, (batch,), functools.partial(self._step, rate, step))

    def _kept(self, moving: list[Tensor]) -> KeptPhase | None:
        """Return what this phase shares with those of other clients, if its steps can be recorded."""
        task, solver, net, rule = self.task, self.task.solver, self.net, self.task.solver.rule
        changes = task.correct is not None or task.after_step is not None or bool(task.draws)
        has_state = self.phase.own is not None or self.phase.optimizer is not None or solver.kept
        if not task.cross_entropy_only or changes or has_state:
            return None
        kind = f"{task.part} {self.entrance}", replace(solver, lr=0.0)
        return net.kept_phases.of(
            net.recorder, self.repeats, kind, lambda: rule.begin(moving), counted=rule.counts
        )

    def _recorded(self) -> RecordedSteps:
        """Return how the steps of a phase are made that shares nothing with others."""
        solver, batches, rates = self.task.solver, self.phase.batches, self.phase.rates

        def kinds() -> list[tuple[int, float]]:
            used = [solver.lr] * len(batches) if rates is None else rates
            return [(index.numel(), rate) for index, rate in zip(batches, used, strict=True)]

        return recorded_steps(self.net.recorder, self.repeats, kinds, counted=solver.rule.counts)


class _Companion:
    """Live parameters that are trained together with the network: those that are stepped, then the gates.

    They see the same batches and the same optimiser, and are never corrected. The gates have a rule of their
    own.
    """

    def __init__(self, task: ClientTask, companion: Params | None) -> None:
        tensors = {} if companion is None else companion.tensors
        live = {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}
        self.params, self._update_gates = Params(live), task.update_gates
        self.stepped = {name: t for name, t in live.items() if name not in task.gates}
        self.names = [f"own.{name}" for name in self.stepped]
        self._gates = {name: live[name] for name in task.gates if live}
        self.live = [*self.stepped.values(), *self._gates.values()]

    def turned(self, grads: list[Tensor], lr: float, step: int) -> list[Tensor]:
        """Move the gates, and return the gradients of the other parameters."""
        stepped, slopes = grads[: len(self.stepped)], grads[len(self.stepped) :]
        if self._gates and self._update_gates is not None:
            now = Params({name: t.detach() for name, t in self._gates.items()})
            slope = Params(dict(zip(self._gates, slopes, strict=True)))
            number = torch.tensor(step, device=now.device)
            for name, value in self._update_gates(now, slope, lr, number).tensors.items():
                self._gates[name].data.copy_(value)
        return stepped


def placed(batches: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Move index batches from the CPU, where they are drawn, to the data's device, in one piece per phase."""
    if device.type == "cpu" or not batches:
        return batches
    return torch.split(torch.cat(list(batches)).to(device), [index.numel() for index in batches])


def _mean_loss(losses: list[Tensor], batches: Sequence[Tensor]) -> float:
    """Return the mean over the samples of the batches' mean losses.

    It is computed at the end, so that no step has to wait for a number.
    """
    if not losses:
        return 0.0
    sizes = [index.numel() for index in batches]
    weighed = list(map(operator.mul, torch.stack(losses).tolist(), sizes))
    # Fsum raises an error for inf − inf
    return (math.fsum if all(map(math.isfinite, weighed)) else plain_sum)(weighed) / sum(sizes)


def resting_layers(
    net: Network, start: State, data: ClientData, batches: Sequence[Tensor], part: Part, augmented: bool
) -> tuple[str, Tensor | None]:
    """Return where the steps enter the network, and what the layers below make of the client's data.

    The result is ("", None), which means at the images, with augmentation or if the steps see fewer samples
    than the client has.
    """
    entrance = "" if augmented else net.entrance(part)
    if not entrance or sum(index.numel() for index in batches) < data.n:
        return "", None
    return entrance, net.rested(start, data.x, entrance, RESTING_CHUNK)


def taken(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows x[index] in x's memory format.

    Indexing alone would turn channels-last images into channels-first ones.
    """
    if x.dim() == 4 and x.stride(1) == 1:
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


def clipped(grads: list[Tensor], limit: float) -> list[Tensor]:
    """Scale gradients to a norm of at most `limit` over all of them."""
    if not grads:
        return grads
    norm = torch.nn.utils.get_total_norm(grads)
    return list(torch._foreach_mul(grads, torch.clamp(limit / (norm + 1e-6), max=1.0)))


def clipped_values(grads: list[Tensor], limit: float) -> list[Tensor]:
    """Bring every number of the gradients into [−limit, limit], as torch's `clip_grad_value_` does."""
    return [g.clamp(-limit, limit) for g in grads]


# The training loop of a local solver, which replaces SGD by a rule of its own.


R = TypeVar("R", bound=Record)


def solve(net: Network, task: ClientTask, phase: TrainingPhase, augmentation: Augmentation | None) -> Trained:
    """Train by a local solver: call `rule.step` on groups of `rule.batches()` batches.

    Each batch is prepared once per step. The rule finds the learning rate of the step in `k.lr`. Of the
    task's solver, the limits of gradients are used.

    Args:
        net: The network, whose scratch copy is used.
        task: What is minimised, and by which rule.
        phase: The client's batches, data and random streams.
        augmentation: A change of the images of a batch, or None. It needs the phase's stream.
    """
    rule, solver, data, k = task.rule, task.solver, phase.data, phase.views[task.slot]
    assert rule is not None
    per, indices = rule.batches(), placed(phase.batches, data.y.device)
    net.noise.generator = phase.dropout

    def objective(f: Forward) -> Tensor:
        return task.objective(f, with_draws(phase.views, draws_of(task, phase, len(f.y))))

    def rate(step: int) -> float:
        return k.lr if phase.rates is None else phase.rates[step]

    def kinds() -> list[tuple[float, ...]]:
        sizes = [index.numel() for index in indices]
        return [(rate(i // per), *sizes[i : i + per]) for i in range(0, len(sizes), per)]

    recorded = recorded_steps(net.recorder, name_of(task, [phase]), kinds)
    carried = rule.begin(k) if recorded is NEVER else with_own_memory(rule.begin(k))

    def make(now: Context, ready: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        nonlocal carried
        losses: list[Tensor] = []

        def gradient(state: State, which: int) -> tuple[Params, Params]:
            net.load(state)
            leaves = used(rule, net.leaves("all"), solver)
            loss = objective(net.forward(*ready[which]))
            grads = list(torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
            losses.append(loss.detach())
            if solver.clip_value is not None:
                grads = clipped_values(grads, solver.clip_value)
            if solver.clip_norm is not None:
                grads = clipped(grads, solver.clip_norm)
            return Params(dict(zip(leaves, grads, strict=True))).clone(), net.statistics()

        after = rule.step(carried, gradient, now)
        if recorded is NEVER:
            carried = after
        else:
            overwrite(carried, after)
        return torch.stack(losses)

    losses_of_steps: list[Tensor] = []
    for first in range(0, len(indices), per):
        group = [
            (taken(data.x, index), data.y.index_select(0, index)) for index in indices[first : first + per]
        ]
        if augmentation is not None and phase.augment is not None:
            group = [(augmentation(x, phase.augment), y) for x, y in group]
        now = k if phase.rates is None else k.replace(lr=rate(first // per))
        kind = now.lr, *(len(y) for _, y in group)
        losses_of_steps.append(recorded.make(kind, (group,), functools.partial(make, now)))
    loss = float(torch.cat(losses_of_steps).mean()) if losses_of_steps else 0.0
    return Trained(ended(rule, carried, net.initial), loss, len(phase.batches), carried=carried)


def ended(rule: LocalSolver, carried: Record, like: State) -> State:
    """Return the model that a local solver ends with, with its tensors in the order of another model.

    Raises:
        UserCodeError: It has other tensors.
    """
    try:
        return rule.end(carried).arranged(like)
    except ValueError as error:
        raise fault(rule, "end", f"returned other tensors than the network's: {error}") from error


def with_own_memory(record: R) -> R:
    """Return a copy of a record in memory of its own, with every point of it in one flat buffer."""
    copied: R = pytree.tree_map(lambda t: t.clone(), record, is_leaf=lambda p: isinstance(p, Params))
    return copied


def overwrite(record: Record, by: Record) -> None:
    """Write another record's numbers into the tensors of a record, which a recorded step reads and writes."""
    new = [leaf.clone() for leaf in pytree.tree_leaves(by)]  # some of them may be tensors of `record`
    for into, tensor in zip(pytree.tree_leaves(record), new, strict=True):
        into.copy_(tensor)


def used(rule: LocalSolver, tensors: dict[str, Tensor], solver: Solver) -> dict[str, Tensor]:
    """Return those of a network's tensors whose gradients are computed for a local solver."""
    if solver.clip_norm is not None:  # it takes the norm of the whole gradient
        return tensors
    return {name: tensors[name] for name in rule.slopes(tuple(tensors))}

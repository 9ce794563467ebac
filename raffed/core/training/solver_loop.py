"""The training loop of a local solver, which replaces SGD by a rule of its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.context import Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.ingredients.results import fault
from raffed.core.params import Params, State
from raffed.core.record import Record
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import NEVER, recorded_steps
from raffed.core.training.sgd import clipped, clipped_values, placed, taken
from raffed.core.training.stepping import Solver
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    Trained,
    TrainingPhase,
    draws_of,
    name_of,
    with_draws,
)

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
    copied: R = pytree.tree_map(lambda one: one.clone(), record, is_leaf=lambda one: isinstance(one, Params))
    return copied


def overwrite(record: Record, by: Record) -> None:
    """Write another record's numbers into the tensors of a record, which a recorded step reads and writes."""
    new = [one.clone() for one in pytree.tree_leaves(by)]  # some of them may be tensors of `record`
    for into, one in zip(pytree.tree_leaves(record), new, strict=True):
        into.copy_(one)


def used(rule: LocalSolver, tensors: dict[str, Tensor], solver: Solver) -> dict[str, Tensor]:
    """Return those of a network's tensors whose gradients are computed for a local solver."""
    if solver.clip_norm is not None:  # it takes the norm of the whole gradient
        return tensors
    return {name: tensors[name] for name in rule.slopes(tuple(tensors))}

"""The training loop of a local solver, which replaces SGD by a rule of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.context import ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver
from raffed.core.ingredients.results import fault
from raffed.core.params import Params, State
from raffed.core.record import Record
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import NEVER, recorded_steps
from raffed.core.training.sgd import Augment, Solver, Trained, clipped, clipped_values, placed, taken

R = TypeVar("R", bound=Record)


def solve(
    net: Network,
    rule: LocalSolver,
    k: Context,
    objective: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    solver: Solver,
    *,
    augment: Augment | None = None,
    rates: Sequence[float] | None = None,
    repeats: str = "",
) -> Trained:
    """Train by a local solver: call `rule.step` on groups of `rule.batches()` batches.

    Each batch is prepared once per step. The rule finds the learning rate of the step in `k.lr`.

    Args:
        net: The network.
        rule: The local solver.
        k: What the client knows.
        objective: Function from (forward pass, number of the step) to the loss.
        data: The client's training samples.
        batches: Indices of the samples in each batch.
        solver: Settings, of which the limits of gradients are used.
        augment: A change of the images of a batch, or None.
        rates: Learning rate of each step of the rule, or None for the one in `k`.
        repeats: As for `sgd`: a name under which a GPU may record steps, or "".
    """
    per, indices = rule.batches(), placed(batches, data.y.device)

    def rate(step: int) -> float:
        return k.lr if rates is None else rates[step]

    def kinds() -> list[tuple[float, ...]]:
        sizes = [index.numel() for index in indices]
        return [(rate(i // per), *sizes[i : i + per]) for i in range(0, len(sizes), per)]

    recorded = recorded_steps(net.recorder, repeats, kinds)
    carried = rule.begin(k) if recorded is NEVER else with_own_memory(rule.begin(k))

    def make(now: Context, step: int, ready: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        nonlocal carried
        losses: list[Tensor] = []

        def gradient(state: State, which: int) -> tuple[Params, Params]:
            net.load(state)
            leaves = used(rule, net.leaves("all"), solver)
            loss = objective(net.forward(*ready[which]), step)
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

    found: list[Tensor] = []
    for first in range(0, len(indices), per):
        group = [
            (taken(data.x, index), data.y.index_select(0, index)) for index in indices[first : first + per]
        ]
        ready = [(x if augment is None else augment(x), y) for x, y in group]
        step = first // per
        now = k if rates is None else k.replace(lr=rate(step))
        kind = now.lr, *(len(y) for _, y in ready)
        found.append(recorded.make(kind, (ready,), functools.partial(make, now, step)))
    loss = float(torch.cat(found).mean()) if found else 0.0
    return Trained(ended(rule, carried, net.initial), loss, len(batches), carried=carried)


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

"""Batches of many clients in one tensor: their records, their order and their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.params import Layout, Params, State
from raffed.core.parts import Part
from raffed.core.training import seeded_dropout
from raffed.core.training.network import Network
from raffed.core.training.optimizers import Moments, Scalar
from raffed.core.training.sgd import resting_layers, taken
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    OptimizerState,
    Solver,
    TrainingPhase,
    Views,
    draws_of,
)
from raffed.errors import UsageError

# Stack the records of k clients so that vmap can take them, and unstack them again.


Tensors = dict[str, Tensor]
Leaf = Tensor | float | str | None  # what a record consists of, after flattening
Pick = slice | Tensor  # selects clients of a stack


def pick_of(members: Sequence[int], is_prefix: bool, device: torch.device) -> Pick:
    """Return how to select some members: a slice if possible, because it gives views, and an index copies."""
    return slice(0, len(members)) if is_prefix else torch.tensor(members, device=device)


@dataclass(frozen=True)
class Stacked:
    """A leaf that differs between clients, as one tensor `all` [k, ...]."""

    all: Tensor


@dataclass(frozen=True)
class Taken:
    """Records of some clients in the form that vmap takes.

    Attributes:
        leaves: The leaves of the records.
        dims: For each leaf, the axis of clients, or None if all clients share the leaf.
    """

    leaves: list[Leaf]
    dims: list[int | None]


def taken_leaves(leaves: Sequence[Stacked | Leaf], pick: Pick) -> Taken:
    """Select some clients from the leaves of `stacked_records`."""
    chosen = [leaf.all[pick] if isinstance(leaf, Stacked) else leaf for leaf in leaves]
    return Taken(chosen, [0 if isinstance(leaf, Stacked) else None for leaf in leaves])


class StackedMemory:
    """What ingredients know about their clients, stacked: memories, models and class counts.

    What all clients share is stored once.
    """

    FIELDS = ("class_counts", "start", "state", "mine", "private", "own")
    NUMBERS = ("client", "steps", "lr_sum", "lr")  # tensors without dimensions where clients differ in them

    def __init__(self, members: list[Views]) -> None:
        # No step reads what compression left out, and it is empty before a client's first upload
        members = [{slot: view for slot, view in views.items() if slot != "compression"} for views in members]
        nobody = {
            "carried": None,
            "features": _refused,
            "held_out": _refused,
            "reestimate": _refused,
            "gradients": _refused,
        }
        # Otherwise one client's values would be used for all
        self._template = {slot: view.replace(**nobody) for slot, view in members[0].items()}
        values = [
            {slot: {name: getattr(v, name) for name in self.FIELDS} for slot, v in views.items()}
            for views in members
        ]
        for name in self.NUMBERS:
            _put_numbers(values, members, name)
        for slot, view in members[0].items():
            if any(views[slot].server is not view.server for views in members):
                for row, views in zip(values, members, strict=True):
                    row[slot]["server"] = views[slot].server
        self._leaves, self._spec = stacked_records(values if self._template else [{}])
        self._last: tuple[slice, Taken] | None = None

    def taken(self, pick: Pick) -> Taken:
        if isinstance(pick, Tensor):
            return taken_leaves(self._leaves, pick)
        if self._last is None or self._last[0] != pick:
            self._last = pick, taken_leaves(self._leaves, pick)
        return self._last[1]

    def views(self, leaves: list[Leaf]) -> Views:
        """Return the contexts of one client, inside vmap."""
        fields = pytree.tree_unflatten(leaves, self._spec)
        return {slot: view.replace(**fields[slot]) for slot, view in self._template.items()}


def stacked_records(
    records: Sequence[pytree.PyTree],
) -> tuple[list[Stacked | Leaf], pytree.TreeSpec]:
    """Stack records of one structure leaf by leaf.

    A leaf becomes `Stacked` if clients differ in it. If all share one object, that object is the leaf.

    Raises:
        UsageError: Plain values or shapes differ. Such a memory cannot be stacked, so the method must run one
            client at a time.
    """
    flat = [pytree.tree_flatten(record) for record in records]
    spec = flat[0][1]
    if any(other != spec for _, other in flat):
        raise UsageError("clients whose memories have different fields cannot be stacked; use cohort = 0")
    leaves: list[Stacked | Leaf] = []
    for column in zip(*(values for values, _ in flat), strict=True):
        first = column[0]
        if all(value is first for value in column):
            leaves.append(first)
        elif isinstance(first, Tensor) and all(
            isinstance(v, Tensor) and v.shape == first.shape for v in column
        ):
            leaves.append(Stacked(torch.stack(list(column))))
        elif not isinstance(first, Tensor) and all(
            type(value) is type(first) and value == first for value in column
        ):
            leaves.append(first)
        else:
            raise UsageError(
                "clients whose memories differ in shape or in plain values cannot be stacked; use cohort = 0"
            )
    return leaves, spec


def _put_numbers(values: list[dict[str, dict[str, Leaf]]], members: list[Views], name: str) -> None:
    """Put a number of every client, as its contexts have it, into the values of its slots.

    It stays a number if all clients have the same. Otherwise a loss gets it as a tensor without dimensions.
    """
    for slot in members[0]:
        numbers = [getattr(views[slot], name) for views in members]
        if any(number != numbers[0] for number in numbers):
            device = members[0][slot].start.w.device
            numbers = list(torch.tensor(numbers, device=device).unbind())  # one copy to a GPU for all
        for row, number in zip(values, numbers, strict=True):
            row[slot][name] = number


def stacked_params(points: Sequence[Params]) -> Tensors:
    """Return name → [k, ...], as own copies."""
    first = points[0]
    if all(point is first for point in points):
        return {name: t[None].repeat(len(points), *(1,) * t.dim()) for name, t in first.tensors.items()}
    return {name: torch.stack([point[name] for point in points]) for name in first.names}


def unstacked(tensors: Tensors, layout: Layout, k: int) -> list[Params]:
    """Return k points, each with its own buffer.

    So keeping one of them does not keep the others in memory.
    """
    if not layout.names:
        return [Params({})] * k
    flat = next(iter(tensors.values())).new_zeros(k, layout.size)
    for name, count, at in zip(layout.names, layout.counts, layout.offsets, strict=True):
        flat[:, at : at + count] = tensors[name].reshape(k, count)
    return [Params.from_flat(layout, row.clone()) for row in flat.unbind()]


def taken_from(tensors: Tensors, pick: Pick) -> Tensors:
    return {name: tensor[pick] for name, tensor in tensors.items()}


def put_back(whole: Tensors, part: Tensors, pick: Pick) -> None:
    for name, tensor in part.items():
        whole[name][pick] = tensor


def _refused(*_: State) -> NoReturn:
    raise TypeError("k.features, k.reestimate and k.gradients belong into finish(), not into an objective")


# Which clients of a stack step together, and what a step takes from their data and streams.


Sizes = tuple[int, ...]  # samples in each batch of one step; SGD takes one batch per step


@dataclass(frozen=True)
class StackedStep:
    """One step of some members of a stack.

    Attributes:
        members: Positions of the members in the stack, ascending.
        steps: Number of the step of each of them, counted from 0.
        batch: Sizes of the batches of this step.
    """

    members: tuple[int, ...]
    steps: tuple[int, ...]
    batch: Sizes

    @property
    def is_prefix(self) -> bool:
        return self.members[-1] == len(self.members) - 1

    def kind(self, lr: Scalar | None) -> Hashable:
        """Return what is equal for steps that a recording of one of them repeats, and unique for any other.

        Members that are no prefix of the stack are copied in their step, and rates that differ between them
        are another tensor in every step. Such a step is repeated by no recording.

        Args:
            lr: The learning rates of the members, or one for all; None if they do not change.
        """
        return self if isinstance(lr, Tensor) or not self.is_prefix else (self.members, self.batch, lr)


def stacked_steps(sizes: Sequence[Sequence[Sizes]]) -> Iterator[StackedStep]:
    """Yield stacked steps that take every member through its own steps in order.

    Each one takes the most common next size (the larger one if two are equally common) and every member that
    waits for it.

    Args:
        sizes: `sizes[i][j]` are the numbers of samples in the batches of step j of member i.
    """
    at = [0] * len(sizes)
    while waiting := {i: steps[at[i]] for i, steps in enumerate(sizes) if at[i] < len(steps)}:
        counts = Counter(waiting.values())
        batch = max(counts, key=lambda size: (counts[size], size))
        members = tuple(i for i, size in waiting.items() if size == batch)
        yield StackedStep(members, tuple(at[i] for i in members), batch)
        for i in members:
            at[i] += 1


class Batches:
    """The members' data in one piece, and what a stacked step takes from the data and the random streams."""

    def __init__(
        self, net: Network, members: Sequence[TrainingPhase], per_step: int, augmentation: Augmentation | None
    ) -> None:
        self.net, self.members, self.per_step, self.augmentation = net, members, per_step, augmentation
        self._x = torch.cat([member.data.x for member in members])
        self._y = torch.cat([member.data.y for member in members])
        self._starts = torch.tensor([0] + [member.data.n for member in members[:-1]]).cumsum(0)
        self._rested: Tensor | None = None
        counts = [[index.numel() for index in member.batches] for member in members]
        self.sizes = [[tuple(row[i : i + per_step]) for i in range(0, len(row), per_step)] for row in counts]

    def rest(self, part: Part) -> str:
        """Choose where the steps enter the network, if the layers below are not trained, as `sgd` does.

        Returns:
            Name of the layer above the untrained ones, if this works for all members. Otherwise "": at the
            images.
        """
        rows = [
            resting_layers(self.net, m.start, m.data, m.batches, part, self.augmentation is not None)
            for m in self.members
        ]
        below = [rested for _, rested in rows if rested is not None]
        self._rested = torch.cat(below) if len(below) == len(rows) else None
        return rows[0][0] if self._rested is not None else ""

    def rested(self, step: StackedStep) -> list[Tensor]:
        """Return what the untrained layers make of a step's first batch [g, B, ...], or nothing."""
        if self._rested is None:
            return []
        rows = self._rested.index_select(0, self._rows(step, 0))
        return [rows.reshape(len(step.members), step.batch[0], *rows.shape[1:])]

    def _rows(self, step: StackedStep, which: int) -> Tensor:
        at = (
            (self.members[i].batches, number * self.per_step + which)
            for i, number in zip(step.members, step.steps, strict=True)
        )
        rows = torch.stack([batches[number] for batches, number in at])
        return (rows + self._starts[list(step.members), None]).flatten().to(self._x.device)

    def take(self, step: StackedStep, which: int) -> tuple[Tensor, Tensor]:
        """Return x [g, B, ...] and y [g, B] of one batch, augmented with each client's own random numbers."""
        index, size, group = self._rows(step, which), step.batch[which], len(step.members)
        x, y = taken(self._x, index), self._y.index_select(0, index)
        streams = [self.members[i].augment for i in step.members]
        if self.augmentation is not None:
            x = self.augmentation.apply(
                x, torch.cat([self.augmentation.draw(size, g) for g in streams if g is not None])
            )
        return x.reshape(group, size, *x.shape[1:]), y.view(group, size)

    def uniform(self, step: StackedStep, x: Tensor) -> list[Tensor]:
        """Return the random numbers of the dropout layers for one pass over x [g, B, ...], each [g, ...]."""
        shapes = self.net.noise_shapes(x[0])
        streams = [self.members[i].dropout for i in step.members]
        rows = [seeded_dropout.draw(shapes, g) for g in streams if g is not None] if shapes else []
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def drawn(self, task: ClientTask, step: StackedStep, which: int) -> Tensors:
        """Return the terms' own random numbers for one pass, each [g, ...]."""
        rows = [draws_of(task, self.members[i], step.batch[which]) for i in step.members]
        return {slot: torch.stack([row[slot] for row in rows]).to(self._x.device) for slot in rows[0]}


# The optimisers of stacked clients: their moments, numbers of steps, and learning rates.


class StackedSteps:
    """The optimiser of k clients.

    Its moments are one tensor [k, ...] for each weight. Clients that go on from a kept state may have made
    different numbers of steps, and schedules by steps may give them different rates. Then the optimiser gets
    a number for each client.

    Args:
        solver: Settings of the optimiser.
        moving: Name → weights [k, ...] that are stepped.
        members: The clients' phases.
    """

    def __init__(
        self, solver: Solver, moving: Mapping[str, Tensor], members: Sequence[TrainingPhase]
    ) -> None:
        self._solver, self._names, self._members = solver, list(moving), members
        self._rule = solver.rule
        self._counts = [0] * len(members)
        self._moments = self._rule.begin(list(moving.values()))
        for i, member in enumerate(members):
            if member.optimizer is not None:
                self._load(i, member.optimizer)

    def _load(self, member: int, state: OptimizerState) -> None:
        self._counts[member] = int(state.count)
        for moment, tensors in state.loaded(self._rule.moments, self._names).items():
            for whole, tensor in zip(self._moments[moment], tensors, strict=True):
                whole[member] = tensor

    def rate(self, step: StackedStep) -> Scalar:
        """Return the learning rate of a step: a number, or [g] if the members have different ones."""
        rows = zip((self._members[i].rates for i in step.members), step.steps, strict=True)
        return one_or_all([self._solver.lr if rates is None else rates[number] for rates, number in rows])

    def begin(self, who: StackedStep) -> None:
        """Count a step of some members. A recorded step does not come to `step` again."""
        for i in who.members:
            self._counts[i] += 1

    def step(
        self, weights: list[Tensor], grads: list[Tensor], who: StackedStep, pick: Pick, lr: Scalar
    ) -> None:
        """Step the weights of some members in place, after `begin`.

        Args:
            weights: Their weights [g, ...].
            grads: Their gradients [g, ...].
            who: The members of this step.
            pick: How these members are selected from a stack.
            lr: What `rate` returned.
        """
        count = one_or_all([float(self._counts[i]) for i in who.members])
        moments: Moments = {name: [t[pick] for t in tensors] for name, tensors in self._moments.items()}
        self._rule.step(weights, grads, moments, lr, self._solver.weight_decay, count)
        if isinstance(pick, Tensor):
            for name, tensors in self._moments.items():
                for whole, part in zip(tensors, moments[name], strict=True):
                    whole[pick] = part

    def states(self) -> list[OptimizerState | None]:
        """Return the state of every member's optimiser."""
        return [
            OptimizerState.of(
                count, self._names, {name: [t[i] for t in ts] for name, ts in self._moments.items()}
            )
            for i, count in enumerate(self._counts)
        ]


def one_or_all(numbers: Sequence[float]) -> Scalar:
    """Return one number if all are equal, otherwise all of them, [g] float64."""
    first = numbers[0]
    return first if all(number == first for number in numbers) else torch.tensor(numbers, dtype=torch.float64)

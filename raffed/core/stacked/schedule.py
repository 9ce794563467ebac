"""Which clients of a stack step together, and what a step takes from their data and streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raffed.core.parts import Part
from raffed.core.stacked.records import Tensors
from raffed.core.training import seeded_dropout
from raffed.core.training.network import Network
from raffed.core.training.sgd import resting_layers, taken
from raffed.core.training.step_arithmetic import Scalar
from raffed.core.training.task import Augmentation, ClientTask, TrainingPhase, draws_of

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
    while waiting := {i: own[at[i]] for i, own in enumerate(sizes) if at[i] < len(own)}:
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
        self._x = torch.cat([one.data.x for one in members])
        self._y = torch.cat([one.data.y for one in members])
        self._starts = torch.tensor([0] + [one.data.n for one in members[:-1]]).cumsum(0)
        self._rested: Tensor | None = None
        counts = [[index.numel() for index in one.batches] for one in members]
        self.sizes = [[tuple(own[i : i + per_step]) for i in range(0, len(own), per_step)] for own in counts]

    def rest(self, part: Part) -> str:
        """Choose where the steps enter the network, if the layers below are not trained, as `sgd` does.

        Returns:
            Name of the layer above the untrained ones, if this works for all members. Otherwise "": at the
            images.
        """
        rows = [
            resting_layers(self.net, one.start, one.data, one.batches, part, self.augmentation is not None)
            for one in self.members
        ]
        below = [made for _, made in rows if made is not None]
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
        own = [self.members[i].augment for i in step.members]
        if self.augmentation is not None:
            x = self.augmentation.apply(
                x, torch.cat([self.augmentation.draw(size, g) for g in own if g is not None])
            )
        return x.reshape(group, size, *x.shape[1:]), y.view(group, size)

    def uniform(self, step: StackedStep, x: Tensor) -> list[Tensor]:
        """Return the random numbers of the dropout layers for one pass over x [g, B, ...], each [g, ...]."""
        shapes = self.net.noise_shapes(x[0])
        own = [self.members[i].dropout for i in step.members]
        rows = [seeded_dropout.draw(shapes, g) for g in own if g is not None] if shapes else []
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def drawn(self, task: ClientTask, step: StackedStep, which: int) -> Tensors:
        """Return the terms' own random numbers for one pass, each [g, ...]."""
        rows = [draws_of(task, self.members[i], step.batch[which]) for i in step.members]
        return {slot: torch.stack([row[slot] for row in rows]).to(self._x.device) for slot in rows[0]}

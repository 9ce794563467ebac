"""The optimisers of stacked clients: their moments, numbers of steps, and learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raffed.core.stacked.records import Pick
from raffed.core.stacked.schedule import StackedStep
from raffed.core.training.optimizer_state import OptimizerState
from raffed.core.training.optimizers import Moments
from raffed.core.training.step_arithmetic import Scalar
from raffed.core.training.stepping import Solver
from raffed.core.training.task import TrainingPhase


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
        for i, one in enumerate(members):
            if one.optimizer is not None:
                self._load(i, one.optimizer)

    def _load(self, member: int, state: OptimizerState) -> None:
        self._counts[member] = int(state.count)
        for moment, tensors in state.loaded(self._rule.moments, self._names).items():
            for whole, own in zip(self._moments[moment], tensors, strict=True):
                whole[member] = own

    def rate(self, step: StackedStep) -> Scalar:
        """Return the learning rate of a step: a number, or [g] if the members have different ones."""
        rows = zip((self._members[i].rates for i in step.members), step.steps, strict=True)
        return one_or_all([self._solver.lr if own is None else own[number] for own, number in rows])

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
    return first if all(one == first for one in numbers) else torch.tensor(numbers, dtype=torch.float64)

"""The learning rate of every step of a run: the run's rate, its warm-up, and its schedule.

A schedule counts rounds, epochs or steps, and stands at its beginning during the warm-up. Only `local_step`,
which begins anew in every round, counts in the rounds of the warm-up as in all others. A client's steps of
shared training in a round are numbered through all passes. Private training, which is a model of its own, has
a clock of its own of the same kind. Steps and epochs over the run are counted as if the client took part in
every round with as many steps as in the present one, so that all clients are equally far, and nothing has to
be remembered.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

from raffed.config.training import CLOCK, CONSTANT, SCHEDULES, Local, Schedule, schedule_arguments
from raffed.config.validation import check_values
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called, user_errors


@dataclass(frozen=True)
class RoundRates:
    """The learning rates of one round.

    Attributes:
        local: How clients train.
        round: Number of the round, counted from 0.
        rounds: Number of rounds T of the run.
    """

    local: Local
    round: int
    rounds: int

    @property
    def changes_in_round(self) -> bool:
        """Whether the rate changes from step to step within a round."""
        return self.local.schedule != CONSTANT and self.local.schedule_by != "round"

    def first(self) -> float:
        """Return the rate of a round in which all steps have one."""
        if self.local.schedule == CONSTANT:
            return self.local.rate(self.round)
        return self.local.rate(self.round) * self._factor(self._done, self._left)

    def of_a_round(self, steps: int = 6, per_epoch: int = 3) -> list[float]:
        """Return the rates of all steps of a client that makes so many."""
        return self.of_steps(0, steps, steps, per_epoch) if self.changes_in_round else [self.first()]

    def of_steps(self, first: int, count: int, steps: int, per_epoch: int) -> list[float]:
        """Return the rates of `count` steps of a round.

        Args:
            first: Number of the first of them in the round, counted from 0.
            count: How many steps are made.
            steps: Number of steps of a client in this round, if it makes all of them.
            per_epoch: Number of steps in an epoch.
        """
        rate, by, steps = self.local.rate(self.round), self.local.schedule_by, max(steps, 1)
        numbers = range(first, first + count)
        if by == "epoch":
            return self.of_epochs([Fraction(j, per_epoch) for j in numbers], Fraction(steps, per_epoch))
        if by == "local_step":
            return [rate * self._factor(j, steps) for j in numbers]
        before, total = self._done * steps, self._left * steps
        return [rate * self._factor(0 if self._warming else before + j, total) for j in numbers]

    def of_epochs(self, places: Sequence[Fraction], epochs: Fraction) -> list[float]:
        """Return the rates of steps of a round, if the schedule counts epochs.

        Args:
            places: For each step, the epochs that the client has completed in this round before it.
            epochs: Number of epochs of the client in this round.
        """
        rate, before, total = self.local.rate(self.round), self._done * epochs, math.ceil(self._left * epochs)
        return [
            rate * self._factor(0 if self._warming else math.floor(before + place), total) for place in places
        ]

    @cached_property
    def _schedule(self) -> Schedule:
        return schedule_of(self.local)

    @property
    def _warming(self) -> bool:
        """Whether the rate still rises, so that the schedule stands at its beginning."""
        return self.round < self.local.warmup_rounds

    @property
    def _done(self) -> int:
        """Rounds that were completed after the warm-up."""
        return max(self.round - self.local.warmup_rounds, 0)

    @property
    def _left(self) -> int:
        """Rounds of the run after the warm-up."""
        return max(self.rounds - self.local.warmup_rounds, 1)

    def _factor(self, done: int, total: int) -> float:
        with user_errors():
            factor = self._schedule(done, total)
        if not isinstance(factor, int | float) or not math.isfinite(factor) or factor < 0:
            raise UsageError(
                f"schedule {self.local.schedule}: it returned {factor!r} for {CLOCK[0]} = {done}, "
                f"{CLOCK[1]} = {total}; it must return a number of 0 or more"
            )
        return float(factor)


def same_rates(local: Local, rounds: int, more: int, sizes: Collection[int] = ()) -> bool:
    """Return whether the rounds of a run have the rates of the first rounds of a longer run.

    Args:
        local: How clients train.
        rounds: Number of rounds of the shorter run.
        more: Number of rounds of the longer run.
        sizes: Training samples of the run's clients. A schedule of one's own may change the rate in the last
            few steps alone, which a client with few steps does not make.
    """
    clients = [(6, 3), *((local.steps(n), max(local.batches(n), 1)) for n in sizes)]
    return all(
        RoundRates(local, round, rounds).of_a_round(*client)
        == RoundRates(local, round, more).of_a_round(*client)
        for client in clients
        for round in range(rounds)
    )


def schedule_of(local: Local) -> Schedule:
    """Return the run's schedule with its arguments: a function of what is done and of the total.

    Raises:
        UsageError: It is not a function of one's own, or its arguments are wrong.
    """
    if local.schedule in SCHEDULES:
        return partial(SCHEDULES[local.schedule], **local.schedule_args)
    function = load(local.schedule)
    if not isinstance(function, types.FunctionType) or not may_be_called(function, "float"):
        raise UsageError(
            f"local.schedule = {local.schedule!r} is not a function of your own; it must be "
            "`def NAME(done: int, total: int) -> float`"
        )
    if len(inspect.signature(function).parameters) < len(CLOCK):
        raise UsageError(f"local.schedule = {local.schedule!r}: it must take {' and '.join(CLOCK)}")
    check_values(f"schedule {local.schedule}", schedule_arguments(function), local.schedule_args)
    return partial(function, **local.schedule_args)

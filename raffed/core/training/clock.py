"""How many steps a client makes in a round, and the learning rate of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raffed.config.training import Local
from raffed.core.method import Method
from raffed.core.parts import Budget, Pass
from raffed.core.training.rates import RoundRates
from raffed.core.training.session import Participant, TrainingSession


@dataclass(frozen=True)
class ClientClock:
    """The steps of one client's shared training in a round.

    Attributes:
        round: The learning rates of the round.
        steps: Number of steps of each pass, if the client makes all of them.
        per_epoch: Number of steps in an epoch.
    """

    round: RoundRates
    steps: Sequence[int]
    per_epoch: int

    @staticmethod
    def of(m: Method, session: TrainingSession, round: int, participant: Participant) -> ClientClock:
        """Return the clock of a client in a round. A straggler has the clock of its whole round."""
        rates = RoundRates(scheduled(m, session.local), round, session.spec.rounds)
        n = participant.data.n
        if not rates.changes_in_round:
            return ClientClock(rates, (), 1)
        steps = [batched(session, one, n).steps(n, one.epochs) for one in m.passes]
        if m.solver is not None:
            steps = [m.solver.iterations(steps[0])]
        return ClientClock(rates, steps, session.local.steps(n, 1))

    @property
    def changes(self) -> bool:
        """Whether the rate changes from step to step."""
        return self.round.changes_in_round

    @property
    def first(self) -> float:
        """The rate of the first step of the round."""
        return self.round.first(sum(self.steps), self.per_epoch)

    def rates(self, number: int, count: int) -> list[float] | None:
        """Return the rates of the first `count` steps of a pass; None if all have the round's rate."""
        if not self.changes:
            return None
        return self.round.of_steps(sum(self.steps[:number]), count, sum(self.steps), self.per_epoch)


def batched(session: TrainingSession, one: Pass, n: int) -> Local:
    """Return the settings by which a client with n samples cuts them into the batches of a pass.

    A last batch of one sample is left out if the pass says so.
    """
    alone = not one.keep_singleton_batch and session.net.normalises and n % session.local.batch_size == 1
    return replace(session.local, drop_last=True) if alone else session.local


def scheduled(m: Method, local: Local) -> Local:
    """Return the run's settings with the schedule that the method follows.

    A method that needs one rate in a round follows the schedule by rounds.
    """
    return replace(local, schedule_by="round") if m.needs_one_rate else local


def private_rates(
    session: TrainingSession, round: int, n: int, steps: int, budget: Budget
) -> list[float] | None:
    """Return the rates of a client's private training, or None if all steps have one rate.

    Args:
        session: How clients train.
        round: Number of the round, counted from 0.
        n: Training samples of the client.
        steps: Number of steps of private training in this round.
        budget: What its ingredient declares.
    """
    rates = RoundRates(session.local, round, session.spec.rounds)
    if not rates.changes_in_round or budget.lr is not None:
        return None
    found = rates.of_steps(0, steps, steps, session.local.steps(n, 1))
    return [rate * budget.lr_scale for rate in found]

"""How many steps a client makes in a round, and the learning rate of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.method import Method
from raffed.core.parts import Budget, Pass
from raffed.core.training.rates import RoundRates
from raffed.core.training.session import Participant, TrainingSession

# Numbers of epochs that are drawn for each client and round.


def drawn_epochs(local: Local, seed: int, one: Pass, round: int, client: int) -> float | None:
    """Return the epochs of a client in a pass, or None for the run's number.

    A number is drawn if the run says so and the pass has no number of its own. It is uniform among the whole
    numbers from `epochs` to `epochs_to`, and the same in all such passes of a round.

    Args:
        local: The run's settings.
        seed: Seed of the run.
        one: The pass.
        round: Number of the round, counted from 0.
        client: Number of the client.
    """
    if one.epochs is not None or not local.epochs_to:
        return one.epochs
    stream = seeds.rng(seed, "epochs", round, client)
    return float(stream.integers(int(local.epochs), local.epochs_to + 1))


@dataclass(frozen=True)
class ClientClock:
    """The steps of one client's shared training in a round.

    Attributes:
        round: The learning rates of the round.
        steps: Number of steps of each pass, if the client makes all of them.
        per_epoch: Number of steps in an epoch of each pass.
    """

    round: RoundRates
    steps: Sequence[int]
    per_epoch: Sequence[int]

    @staticmethod
    def of(m: Method, session: TrainingSession, round: int, participant: Participant) -> ClientClock:
        """Return the clock of a client in a round. A straggler has the clock of its whole round."""
        rates = RoundRates(scheduled(m, session.local), round, session.spec.rounds)
        n = participant.data.n
        if not rates.changes_in_round:
            return ClientClock(rates, (), ())
        epochs = [
            drawn_epochs(session.local, session.seed, one, round, participant.client) for one in m.passes
        ]
        cut = [batched(session.local, one, n, session.net.normalises) for one in m.passes]
        steps = [local.steps(n, times) for local, times in zip(cut, epochs, strict=True)]
        per_epoch = [local.batches(n) for local in cut]
        if m.solver is not None:
            steps, per_epoch = ([m.solver.iterations(one[0])] for one in (steps, per_epoch))
        return ClientClock(rates, steps, per_epoch)

    @property
    def changes(self) -> bool:
        """Whether the rate changes from step to step."""
        return self.round.changes_in_round

    @property
    def first(self) -> float:
        """The rate of the first step of the round."""
        return self.round.first() if not self.changes else self._rates(0, 1)[0]

    def rates(self, number: int, count: int) -> list[float] | None:
        """Return the rates of the first `count` steps of a pass; None if all have the round's rate."""
        return self._rates(number, count) if self.changes else None

    def _rates(self, number: int, count: int) -> list[float]:
        if self.round.local.schedule_by != "epoch":
            return self.round.of_steps(sum(self.steps[:number]), count, sum(self.steps), 1)
        made = [Fraction(steps, each) for steps, each in zip(self.steps, self.per_epoch, strict=True)]
        before, each = sum(made[:number], Fraction(0)), self.per_epoch[number]
        return self.round.of_epochs(
            [before + Fraction(j, each) for j in range(count)], sum(made, Fraction(0))
        )


def batched(local: Local, one: Pass, n: int, normalises: bool) -> Local:
    """Return the settings by which a client cuts its samples into the batches of a pass.

    A last batch of one sample is left out if the pass says so.

    Args:
        local: The run's settings.
        one: The pass.
        n: Training samples of the client.
        normalises: Whether the network has BatchNorm.
    """
    alone = not one.keep_singleton_batch and normalises and n % local.batch_size == 1
    return replace(local, drop_last=True) if alone else local


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
    found = rates.of_steps(0, steps, steps, session.local.batches(n))
    return [rate * budget.lr_scale for rate in found]

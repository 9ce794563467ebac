"""What stays the same from round to round, which clients take part in one, and how many steps they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.core.context import ClientData, Spec
from raffed.core.messages import Broadcast, ClientState
from raffed.core.method import Training
from raffed.core.parts import Budget, Pass
from raffed.core.training.network import Network
from raffed.core.training.optimizers import make_optimizer
from raffed.core.training.rates import RoundRates
from raffed.core.training.sgd import SgdPhase, solve
from raffed.core.training.task import Augmentation, ClientTask, Execute, Solver, Trained, TrainingPhase

# The reference execution: one client after the other.


def one_by_one(
    net: Network, task: ClientTask, phases: Sequence[TrainingPhase], augmentation: Augmentation | None
) -> list[Trained]:
    """Train each client's phase on its own, one after the other."""
    ended = []
    for phase in phases:
        alone = SgdPhase(net, task, phase, augmentation) if task.rule is None else None
        ended.append(solve(net, task, phase, augmentation) if alone is None else alone.run())
    return ended


@dataclass(frozen=True)
class TrainingSession:
    """What does not change from round to round.

    Attributes:
        net: The network.
        local: How clients train.
        seed: Seed of the run.
        spec: Sizes of the model and of the federation.
        augment: The augmentation, or None.
        execute: How training phases are executed: one by one, or stacked.
    """

    net: Network
    local: Local
    seed: int
    spec: Spec
    augment: Augmentation | None = None
    execute: Execute = one_by_one


@dataclass(frozen=True)
class Participant:
    """A client that takes part in a round.

    Attributes:
        client: Number of the client.
        client_state: Its client state, or None before its first participation.
        data: Its training samples.
        completed_fraction: Fraction of its steps of shared training that it makes, in (0, 1].
        sent: What it downloads, if that was already made of the round's broadcast (`replied`).
    """

    client: int
    client_state: ClientState | None
    data: ClientData
    completed_fraction: float = 1.0
    sent: Broadcast | None = None

    def steps(self, local: Local, epochs: float | None) -> int:
        """Return its number of steps in a shared pass. A straggler makes the first of them, at least one."""
        return completed_steps(local.steps(self.data.n, epochs), self.completed_fraction)


def completed_steps(steps: int, fraction: float) -> int:
    """Return how many steps of a pass a client makes that makes a fraction of them, at least one."""
    return (steps if fraction == 1.0 else math.ceil(round(fraction * steps, 6))) or 1


def solver_for(local: Local, override: Pass, lr: float, sgd: bool = False) -> Solver:
    """Return the settings of the optimiser in a phase.

    Args:
        local: The run's settings.
        override: What the phase overrides. A momentum there means SGD with this momentum.
        lr: Learning rate.
        sgd: Whether the phase needs SGD whose velocity begins at zero, whatever optimiser the run has.
    """
    keeps = local.keep_optimizer and not sgd
    sgd = sgd or override.momentum is not None
    other = sgd and local.optimizer != "sgd"
    name: str = "sgd" if other else local.optimizer
    given: Mapping[str, Value] = {} if other else local.optimizer_args
    momentum = (local.momentum if name == "sgd" else 0.0) if override.momentum is None else override.momentum
    decay = local.weight_decay if override.weight_decay is None else override.weight_decay
    optimizer = make_optimizer(name, given, momentum)
    return Solver(
        lr,
        momentum,
        decay,
        local.clip_norm,
        local.clip_value,
        optimizer,
        local.label_smoothing,
        keeps and bool(optimizer.moments),
    )


# How many steps a client makes in a round, and the learning rate of each of them.


# Numbers of epochs that are drawn for each client and round.


def drawn_epochs(local: Local, seed: int, pass_: Pass, round: int, client: int) -> float | None:
    """Return the epochs of a client in a pass, or None for the run's number.

    A number is drawn if the run says so and the pass has no number of its own. It is uniform among the whole
    numbers from `epochs` to `epochs_to`, and the same in all such passes of a round.

    Args:
        local: The run's settings.
        seed: Seed of the run.
        pass_: The pass.
        round: Number of the round, counted from 0.
        client: Number of the client.
    """
    if pass_.epochs is not None or not local.epochs_to:
        return pass_.epochs
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
    def of(m: Training, session: TrainingSession, round: int, participant: Participant) -> ClientClock:
        """Return the clock of a client in a round. A straggler has the clock of its whole round."""
        # A method that needs one rate in a round follows the schedule by rounds
        local = replace(session.local, schedule_by="round") if m.needs_one_rate else session.local
        rates = RoundRates(local, round, session.spec.rounds)
        n = participant.data.n
        if not rates.changes_in_round:
            return ClientClock(rates, (), ())
        epochs = [
            drawn_epochs(session.local, session.seed, pass_, round, participant.client) for pass_ in m.passes
        ]
        cut = [batched(session.local, pass_, n, session.net.normalises) for pass_ in m.passes]
        steps = [settings.steps(n, times) for settings, times in zip(cut, epochs, strict=True)]
        per_epoch = [settings.batches(n) for settings in cut]
        if m.solver is not None:
            steps, per_epoch = ([m.solver.iterations(counts[0])] for counts in (steps, per_epoch))
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
        epochs = [Fraction(steps, each) for steps, each in zip(self.steps, self.per_epoch, strict=True)]
        before, each = sum(epochs[:number], Fraction(0)), self.per_epoch[number]
        return self.round.of_epochs(
            [before + Fraction(j, each) for j in range(count)], sum(epochs, Fraction(0))
        )


def batched(local: Local, pass_: Pass, n: int, normalises: bool) -> Local:
    """Return the settings by which a client cuts its samples into the batches of a pass.

    A last batch of one sample is left out if the pass says so.

    Args:
        local: The run's settings.
        pass_: The pass.
        n: Training samples of the client.
        normalises: Whether the network has BatchNorm.
    """
    alone = not pass_.keep_singleton_batch and normalises and n % local.batch_size == 1
    return replace(local, drop_last=True) if alone else local


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
    run_rates = rates.of_steps(0, steps, steps, session.local.batches(n))
    return [rate * budget.lr_scale for rate in run_rates]

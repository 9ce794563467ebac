"""What stays the same from round to round, who takes part in one, and which settings a method follows.

A method follows some of a run's settings of local training, and uses others in place of the rest. It
declares this by its parts: a pass with a momentum or weight decay of its own, an ingredient that needs SGD or
one rate in a round, a local solver, which steps by a rule of its own, or a head whose cross-entropy cannot be
smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from raffed.config.training import CONSTANT, Local
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.core.context import ClientData, Spec
from raffed.core.ingredients import Personal
from raffed.core.messages import Broadcast, ClientState
from raffed.core.method import Method, Training
from raffed.core.parts import Budget, Pass
from raffed.core.training.network import Network
from raffed.core.training.optimizers import make_optimizer
from raffed.core.training.rates import RoundRates
from raffed.core.training.sgd import SgdPhase, solve
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    Execute,
    KeptOptimizer,
    Solver,
    Trained,
    TrainingPhase,
)

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


# What a local solver may follow (`LocalSolver.follows`), with the values that change nothing
STEPPING: Mapping[str, tuple[Value, ...]] = {
    "lr": (0.0,),
    "momentum": (0.0,),
    "weight_decay": (0.0,),
    "warmup_rounds": (0,),
    "schedule": (CONSTANT,),
    "optimizer": ("sgd",),
    "optimizer_args": ({}, {"nesterov": False}),
    "keep_optimizer": (False,),
}


class Override(NamedTuple):
    """A setting of the run that a method overrides in shared training.

    Attributes:
        name: Field of the section [local].
        given: Its value in the run.
        used: What is used, or None if the method has no such setting.
    """

    name: str
    given: Value
    used: Value


def with_optimizer(m: Method, local: Local) -> Method:
    """Return the method with the ingredient that keeps the optimiser's state, if the run asks for it.

    A method whose training keeps no such state is returned as it is.
    """
    shared = m.solver is None and _keeps(m.training, local)
    if not local.keep_optimizer or not (shared or _keeps_private(m)):
        return m
    return replace(m, optimizer=KeptOptimizer())


def _keeps(m: Training, local: Local) -> bool:
    return any(solver_for(local, pass_, local.lr, m.needs_sgd).kept for pass_ in m.passes)


def _keeps_private(m: Method) -> bool:
    trains = m.personal is not None and type(m.personal).budget is not Personal.budget
    return trains and m.personal is not None and not m.personal.plain_sgd


def overrides(m: Training, local: Local) -> list[Override]:
    """Return the settings of the run that the method overrides in shared training.

    Args:
        m: What of the method decides how its clients step.
        local: The run's settings.
    """
    overridden = _of_a_rule(m, local) if m.solver is not None else _of_passes(m, local)
    if local.label_smoothing and m.head is not None and not m.head.smooths:
        overridden.append(Override("label_smoothing", local.label_smoothing, 0.0))
    return overridden


def _of_a_rule(m: Training, local: Local) -> list[Override]:
    assert m.solver is not None
    follows = m.solver.follows
    given = {name: getattr(local, name) for name in STEPPING if name not in follows}
    return [Override(name, value, None) for name, value in given.items() if value not in STEPPING[name]]


def _of_passes(m: Training, local: Local) -> list[Override]:
    by_name: dict[str, Override] = {}
    for pass_ in m.passes:
        used = _used(m, pass_, local)
        for name in ("optimizer", "optimizer_args", "momentum", "weight_decay", "schedule_by"):
            given = getattr(local, name)
            if used[name] != given and not (name == "momentum" and local.optimizer != "sgd"):
                by_name[name] = Override(name, given, used[name])
    if local.keep_optimizer and not _keeps(m, local):
        by_name["keep_optimizer"] = Override("keep_optimizer", True, False)
    return list(by_name.values())


def _used(m: Training, pass_: Pass, local: Local) -> dict[str, Value]:
    """Return what a pass of shared training uses."""
    solver = solver_for(local, pass_, local.lr, m.needs_sgd)
    sgd = m.needs_sgd or pass_.momentum is not None
    smoothing = local.label_smoothing if m.head is None or m.head.smooths else 0.0
    return {
        "part": pass_.part,
        "epochs": local.expected_epochs if pass_.epochs is None else pass_.epochs,
        "optimizer": "sgd" if sgd else local.optimizer,
        "optimizer_args": _arguments(local, sgd, solver.momentum),
        "lr": local.lr,
        "momentum": solver.momentum,
        "weight_decay": solver.weight_decay,
        **_schedule(local, m.needs_one_rate),
        "keep_optimizer": solver.kept,
        "clip_norm": local.clip_norm,
        "clip_value": local.clip_value,
        "label_smoothing": smoothing,
    }


def _arguments(local: Local, sgd: bool, momentum: float) -> dict[str, Value]:
    """Return the optimiser's arguments that are used. Nesterov's step without momentum is the plain one."""
    if sgd and local.optimizer != "sgd":
        return {}
    plain = local.optimizer == "sgd" and not momentum
    return {name: value for name, value in local.optimizer_args.items() if not (plain and name == "nesterov")}


def _schedule(local: Local, by_round: bool) -> dict[str, Value]:
    return {
        "warmup_rounds": local.warmup_rounds,
        "schedule": local.schedule,
        "schedule_args": dict(local.schedule_args),
        "schedule_by": "round" if by_round else local.schedule_by,
    }


def _by_a_rule(m: Training, local: Local) -> dict[str, Value]:
    """Return what a local solver uses. None stands for what it does not have."""
    assert m.solver is not None
    follows = m.solver.follows
    used = {**_used(m, m.passes[0], local), "optimizer": type(m.solver).__name__, "optimizer_args": {}}
    for name in ("lr", "momentum", "weight_decay", "warmup_rounds", "schedule"):
        used[name] = used[name] if name in follows else None
    if "schedule" not in follows:
        used["schedule_args"] = used["schedule_by"] = None
    return {**used, "keep_optimizer": None}


def effective(m: Training, local: Local) -> dict[str, Value]:
    """Return how clients really train, as run.json records it.

    Args:
        m: What of the method decides how its clients step.
        local: The run's settings.

    Returns:
        "shared": a table for each pass of shared training. "private": a table for private training, if the
        method has it; its rate may be a share of the run's. "overridden": setting of the run → what was given
        and what is used in shared training. None stands for a setting that the method does not have.
    """
    passes = [_used(m, pass_, local) for pass_ in m.passes] if m.solver is None else [_by_a_rule(m, local)]
    tables: dict[str, Value] = {
        "shared": passes,
        "overridden": {row.name: {"given": row.given, "used": row.used} for row in overrides(m, local)},
    }
    if m.personal is not None and type(m.personal).budget is not Personal.budget:
        tables["private"] = _private(m.personal, local)
    return tables


def steps_of(m: Training, local: Local, samples: int) -> int:
    """Return how many steps of shared training a client with so many samples makes in a round."""
    steps = [local.steps(samples, pass_.epochs) for pass_ in m.passes]
    return sum(steps) if m.solver is None else m.solver.iterations(steps[0])


def _private(personal: Personal, local: Local) -> dict[str, Value]:
    plain = personal.plain_sgd
    override = Pass(momentum=0.0, weight_decay=0.0) if plain else Pass()
    solver = solver_for(local, override, local.lr)
    return {
        "optimizer": "sgd" if plain else local.optimizer,
        "optimizer_args": {} if plain else dict(local.optimizer_args),
        "lr": None if plain else local.lr,
        "momentum": solver.momentum,
        "weight_decay": solver.weight_decay,
        **(dict.fromkeys(_schedule(local, False)) if plain else _schedule(local, False)),
        "keep_optimizer": solver.kept,
        "clip_norm": local.clip_norm,
        "clip_value": local.clip_value,
        "label_smoothing": local.label_smoothing,
    }


def override_line(m: Training, local: Local) -> str:
    """Return one line about the settings that the method overrides; empty if it overrides none."""
    overridden = [*_of_epochs(m, local), *overrides(m, local)]
    shown = [f"local.{row.name} = {row.given} ({_instead(row.used)})" for row in overridden]
    if not shown:
        return ""
    *others, last = shown
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{m.name} overrides {listed} in shared training"


def _of_epochs(m: Training, local: Local) -> list[Override]:
    """Return the epochs that a run asks for, if every pass of the method has a number of its own.

    The usual number is not reported, since the user need not have asked for it.
    """
    epochs = [pass_.epochs for pass_ in m.passes if pass_.epochs is not None]
    if len(epochs) < len(m.passes) or local.epochs == Local().epochs or set(epochs) == {local.epochs}:
        return []
    return [Override("epochs", local.epochs, " and ".join(f"{number:g}" for number in epochs))]


def _instead(used: Value) -> str:
    return "it has its own rule" if used is None else f"it uses {used}"

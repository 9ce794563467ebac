"""Which of a run's settings of local training a method follows, and what is used in place of the others.

A method declares this by its parts: a pass with a momentum or weight decay of its own, an ingredient that
needs SGD or one rate in a round, a local solver, which steps by a rule of its own, or a head whose
cross-entropy cannot be smoothed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from raffed.config.training import CONSTANT, Local
from raffed.config.validation import Value
from raffed.core.ingredients import Personal
from raffed.core.method import Method, Training
from raffed.core.parts import Pass
from raffed.core.training.session import solver_for
from raffed.core.training.task import KeptOptimizer

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

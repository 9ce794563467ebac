"""The configuration of a run as plain data: immutable, validated, and stored beside the run's results.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.config.sections import SECTIONS, Clock, Data, Model, Numerics, Privacy, Runtime, Section
from raffed.config.training import Local
from raffed.config.validation import (
    Declaration,
    Doc,
    Importable,
    Name,
    Range,
    Value,
    check_fields,
    declarations,
    keep,
)
from raffed.errors import UnknownNameError, UsageError
from raffed.own.names import as_name

# Where files lie is no part of an identity
PLACES = ("data.root", "data.download", "model.init", "clock.trace")
# Sections and fields that are younger than the first identities, which they leave as they are
OMITTED_WHEN_DEFAULT = ("numerics", "faults", "privacy", "clock")
YOUNGER = {
    "local": (
        *("schedule", "schedule_args", "schedule_by", "optimizer", "optimizer_args", "keep_optimizer"),
        *("clip_value", "label_smoothing", "epochs_to"),
    ),
    "data": ("validation", "samples", "split_args", "transform_args", "pool"),
    "model": ("init_sha256",),
    "numerics": ("bits", "convolutions"),
    "federation": (
        *("survey", "measures", "metrics", "unseen_clients", "weighting", "strength_every"),
        *("stop_when", "forked_at", "fork_sha256"),
        *("selection", "selection_args", "mean", "mean_args"),
        *("compression", "compression_args"),
    ),
    "faults": (
        *("attack", "attackers", "attacker_list", "attack_strength"),
        *("backdoor_target", "backdoor_share"),
    ),
}


@dataclass(frozen=True)
class RunConfig:
    """One run: one method with its arguments, on one data set, split, model and federation, with one seed.

    Raises:
        UsageError: A field has a wrong type, a value outside its range, or two fields contradict each other.

    Example:
        RunConfig(method="fedprox", args={"mu": 0.01}, federation=Federation(rounds=50))
    """

    method: Annotated[
        Name[Importable],
        Doc(
            "Name of the method, see `raffed methods`; for your own ./file.py:NAME or package.module:NAME. "
            "In Python it may be the function itself, which is stored as its reference."
        ),
    ] = Name("fedavg")
    args: Annotated[
        Mapping[str, Value],
        Doc("Argument of the method, such as mu=0.1; repeat for more. See `raffed methods NAME`."),
    ] = field(default_factory=dict)
    data: Annotated[Data, Doc("The data, and how they are divided among clients.")] = field(
        default_factory=Data
    )
    model: Annotated[Model, Doc("The neural network.")] = field(default_factory=Model)
    local: Annotated[Local, Doc("How clients train.")] = field(default_factory=Local)
    federation: Annotated[Federation, Doc("Rounds, participation and evaluation.")] = field(
        default_factory=Federation
    )
    numerics: Annotated[Numerics, Doc("Precision, stacks of clients, and where bits hold.")] = field(
        default_factory=Numerics
    )
    faults: Annotated[Faults, Doc("Faults that are planned: a TOML file with the table [faults].")] = field(
        default_factory=Faults
    )
    privacy: Annotated[Privacy, Doc("Differential privacy and masks.")] = field(default_factory=Privacy)
    clock: Annotated[Clock, Doc("Virtual time, and when the server makes its next model.")] = field(
        default_factory=Clock
    )
    runtime: Annotated[Runtime, Doc("Where and how the run is executed.")] = field(default_factory=Runtime)
    seed: Annotated[int, Range(0, 2**31 - 1), Doc("Seed of every random choice of the run.")] = 0
    loss: Annotated[
        Name[Importable],
        Doc(
            "Loss of your own, ./file.py:NAME or package.module:NAME, a function of logits and labels; "
            "without it: the cross-entropy. In Python it may be the function itself."
        ),
    ] = Name("")
    loss_args: Annotated[
        Mapping[str, Value],
        Doc("Argument of that loss, such as gamma=2.0; repeat for more."),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.method).__name__ == "Method":
            raise UsageError(
                "method is a Method, which has no name that other processes know; give the function that "
                "returns it, at the top level of a file or notebook: def mine(): return Method(...)"
            )
        keep(self, method=as_name(self.method), loss=as_name(self.loss))
        check_fields("", self)
        for name, kind in SECTIONS.items():
            section = getattr(self, name)
            if not isinstance(section, kind):
                raise UsageError(f"{name} = {section!r}: it must be a {kind.__name__}")
            check_fields(name, section)
        self.runtime.check_share()
        if self.loss_args and not self.loss:
            raise UsageError("loss_args are given without a loss; also give loss (--loss)")
        if self.local.epochs_to and self.local.schedule_by in ("step", "epoch"):
            raise UsageError(
                f"local.schedule_by = {self.local.schedule_by!r} with local.epochs_to: how many steps the "
                "rounds have is drawn and not known beforehand; use round or local_step"
            )
        if self.loss and self.local.label_smoothing:
            raise UsageError(
                f"local.label_smoothing = {self.local.label_smoothing} belongs to the cross-entropy, which "
                f"loss = {self.loss} replaces; leave one of the two out"
            )
        if self.numerics.cohort > 1 and self.runtime.clients_per_actor == 1:
            raise UsageError(
                "numerics.cohort stacks clients of one actor, but runtime.clients_per_actor = 1 gives "
                "each client its own; leave one of them out"
            )
        self._check_arithmetic()

    def _check_arithmetic(self) -> None:
        """Refuse bits and convolutions where they cannot be had: those of float32 on a CPU."""
        float32 = ("numerics.precision", self.numerics.precision, "fp32")
        cpu = ("runtime.gpu_fraction", self.runtime.gpu_fraction, 0.0)
        alone = ("runtime.threads", self.runtime.threads, 1)  # portable bits were compared for one thread
        for setting, usual, needs in (
            ("bits", "machine", (float32, cpu, alone)),
            ("convolutions", "torch", (float32, cpu)),
        ):
            chosen = getattr(self.numerics, setting)
            for name, given, needed in needs if chosen != usual else ():
                if given != needed:
                    raise UsageError(
                        f"numerics.{setting} = {chosen!r} cannot be had with {name} = {given!r}; use "
                        f"{needed!r}, or numerics.{setting} = {usual!r}"
                    )

    def as_dict(self) -> dict[str, Value]:
        """Return the configuration as nested tables, as they are written into run.json."""
        return dataclasses.asdict(self)

    def changed(self, values: Mapping[str, Value]) -> RunConfig:
        """Return the same configuration with other values.

        Args:
            values: Field, section.field such as local.lr, or an argument such as
                local.optimizer_args.beta1 → value.
        """
        tables = self.as_dict()
        for name, value in values.items():
            section, *path = name.split(".")
            tables[section] = _put(tables.get(section), path, value)
        return RunConfig.from_dict(tables)

    def identity(self) -> str:
        """Return the SHA-256 of all settings that determine the result.

        Two runs with the same identity have the same result, bit for bit, on the same kind of machine, and
        those with portable bits on every machine.
        Settings that were added later are left out while they have their default, so that the identities of
        older runs stay valid.
        """
        parts: dict[str, Value] = {"method": self.method, "args": dict(self.args), "seed": self.seed}
        if self.loss:
            parts["loss"] = {"name": self.loss, "args": dict(self.loss_args)}
        for name in SECTIONS:
            values = dataclasses.asdict(getattr(self, name))
            if name not in OMITTED_WHEN_DEFAULT or values != _usual_values(name):
                parts[name] = _deciding(name, values)
        del parts["runtime"]
        rounding = {"threads": self.runtime.threads, "gpu": self.runtime.gpu_fraction > 0}
        if rounding != {"threads": 1, "gpu": False}:
            parts["rounding"] = rounding
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @staticmethod
    def from_dict(values: Mapping[str, Value]) -> RunConfig:
        """Make a configuration from nested mappings, as read from a TOML file or from run.json.

        Args:
            values: Field or section name → value. Everything that is not given has its default.

        Returns:
            The validated configuration.

        Raises:
            UnknownNameError: A key is unknown. The message lists the nearest keys.
            UsageError: A key stands in the wrong section, or a value is invalid.
        """
        _check_known("", list(values), declarations(RunConfig))
        if not isinstance(values.get("args", {}), Mapping):
            raise UsageError(f"[args] is {values['args']!r}, but must be a table of the method's arguments")
        sections = {name: _section(name, values[name]) for name in SECTIONS if name in values}
        make: Callable[..., RunConfig] = RunConfig
        return make(**{**values, **sections})


def _put(before: Value, path: Sequence[str], value: Value) -> Value:
    """Return a table with the value at the end of a path of keys, or the value itself for an empty path."""
    if not path:
        return value
    table = before if isinstance(before, Mapping) else {}
    return {**table, path[0]: _put(table.get(path[0]), path[1:], value)}


def _deciding(section: str, values: dict[str, Value]) -> dict[str, Value]:
    """Return the fields of a section that determine the result. A younger one counts unless it is the usual
    one.
    """
    usual, younger = _usual_values(section), YOUNGER.get(section, ())
    return {
        name: value
        for name, value in values.items()
        if f"{section}.{name}" not in PLACES and (name not in younger or value != usual[name])
    }


@functools.cache
def _usual_values(section: str) -> Mapping[str, Value]:
    """Return the defaults of a section. They are only compared with."""
    values: Mapping[str, Value] = dataclasses.asdict(SECTIONS[section]())
    return values


def _check_known(where: str, keys: Iterable[str], known: Mapping[str, Declaration]) -> None:
    for key in keys:
        if key in known:
            continue
        homes = [f"[{name}]" for name, kind in SECTIONS.items() if key in declarations(kind)]
        if where and key in ("method", "seed"):
            homes.append("the lines before any [section]")
        if homes:
            raise UsageError(f"key {key!r} in {where or 'no section'}: it belongs in {' or '.join(homes)}")
        raise UnknownNameError(f"key in {where or 'the configuration'}", key, known)


def _section(name: str, values: Value) -> Section:
    if not isinstance(values, Mapping):
        raise UsageError(f"[{name}] is {values!r}, but must be a table")
    kind: Callable[..., Section] = SECTIONS[name]
    _check_known(f"[{name}]", list(values), declarations(kind))
    return kind(**values)

"""A run as plain data: frozen, validated in its parts, written whole beside its results. Imports neither
torch nor Ray.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raffed.config.faults import Faults
from raffed.config.privacy import Privacy
from raffed.config.training import Local
from raffed.errors import UnknownNameError, UsageError, check_choice, check_range

EXECUTIONS = ("ray", "serial", "auto")
PRECISIONS = ("fp32", "bf16")
MEASURES = ("memory", "spectrum")  # core/measures/client_memory.py, core/measures/feature_spectrum.py
WEIGHTINGS = ("samples", "clients")
STYLES = ("auto", "plain", "map", "map-authors", "fedmr")


@dataclass(frozen=True)
class Data:
    """dataset, split: names as `raffed datasets`, `raffed splits`. root: data folder (None: RAFFED_DATA).
    transform: whose preprocessing, auto = map for incomplete and dirichlet splits, fedmr for pXcY and iid,
    plain otherwise. local_test: held out fraction of each client's samples (None: 0.2, but 0 for iid and
    pXcY). validation: fraction of each client's training samples that it does not train on but is scored on,
    for choosing hyper-parameters without looking at test data. samples: size of the training pool, equally
    many of every class, drawn by the seed (0: all there are).
    """

    dataset: str = "digits"
    split: str = "p10c2"
    root: str | None = None
    download: bool = False
    transform: str = "auto"
    local_test: float | None = None
    validation: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Model:
    """name as `raffed models`; args: keywords of its factory."""

    name: str = "mlp"
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Federation:
    """rounds T; participation Q: round(Q·N) clients a round, drawn uniformly without replacement; evaluation
    every `eval_every` rounds and after the last; local evaluation of the participants' models in the same
    rounds. survey: in each of the last `survey` rounds the participants' models are evaluated too, and after
    it all clients' models are scored on their local test parts as they then stand. measures: names of
    MEASURES, with commas: what is measured after the last round besides. weighting: p_k of the mean, of
    WEIGHTINGS, instead of the method's own (""): n_k / Σ n or 1/|S|.
    """

    rounds: int = 20
    participation: float = 1.0
    eval_every: int = 1
    survey: int = 0
    measures: str = ""
    weighting: str = ""

    def participants(self, clients: int) -> int:
        """|S_t| = round(Q·N), at least 1."""
        return max(1, round(self.participation * clients))

    def asks(self, name: str) -> bool:
        """Whether `measures` names it."""
        return name in (one.strip() for one in self.measures.split(","))


@dataclass(frozen=True)
class Numerics:
    """How the arithmetic is carried out: named modes, each deterministic, whose results differ by rounding.

    cohort: clients stacked and stepped together (0: one after the other; bit-equal to itself for any
    placement). precision: fp32, or bf16 for the forward and backward passes with fp32 weights, losses, sums
    and evaluation.
    """

    cohort: int = 0
    precision: str = "fp32"


@dataclass(frozen=True)
class Runtime:
    """Where and how it runs; changes no bit of the result, but that rounding follows `threads`, whether GPUs
    compute, and the cohort that `auto` may choose.

    execution: ray, serial, or auto: what a short probe finds fastest, of both and of one by one and cohorts.
    actors: client actors, 0 = auto (as many as cores, or 1/gpu_fraction a GPU). clients_per_actor: 1 is one
    actor a client; 0 = auto. gpu_fraction: share of a GPU each actor is pinned to, 1/k; 0 = CPU. threads:
    torch threads per actor. address: a Ray cluster ("auto": the one this machine belongs to; None: start one
    here). max_restarts: how often lost actors are replaced in a run. checkpoint_every: rounds between
    checkpoints; keep_checkpoints: how many are kept.
    """

    execution: str = "ray"
    actors: int = 0
    clients_per_actor: int = 0
    gpu_fraction: float = 0.0
    threads: int = 1
    address: str | None = None
    max_restarts: int = 10
    checkpoint_every: int = 10
    keep_checkpoints: int = 3


SECTIONS: dict[str, type[Any]] = {
    "data": Data,
    "model": Model,
    "local": Local,
    "federation": Federation,
    "numerics": Numerics,
    "faults": Faults,
    "privacy": Privacy,
    "runtime": Runtime,
}


@dataclass(frozen=True)
class RunConfig:
    """One run: a method with its arguments on a data set, a split, a model and a federation, with one
    seed.
    """

    method: str = "fedavg"
    args: Mapping[str, Any] = field(default_factory=dict)
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    local: Local = field(default_factory=Local)
    federation: Federation = field(default_factory=Federation)
    numerics: Numerics = field(default_factory=Numerics)
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)
    runtime: Runtime = field(default_factory=Runtime)
    seed: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        _check_local(self.local)
        _check_federation(self.federation)
        _check_runtime(self.runtime)
        check_choice("numerics.precision", self.numerics.precision, PRECISIONS)
        _at_least("numerics.cohort", self.numerics.cohort, 0)
        if self.numerics.cohort > 1 and self.runtime.clients_per_actor == 1:
            raise UsageError(
                "numerics.cohort stacks clients of one actor, runtime.clients_per_actor = 1 gives each its "
                "own"
            )
        check_choice("data.transform", self.data.transform, STYLES)
        if self.data.local_test is not None:
            check_range("data.local_test", self.data.local_test, 0.0, 0.9)
        check_range("data.validation", self.data.validation, 0.0, 0.9)
        _at_least("data.samples", self.data.samples, 0)
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed = {self.seed} is outside [0, 2^31)")

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def canonical(self) -> RunConfig:
        """The same with one spelling of every number: an int given for a float is that float."""
        return RunConfig.from_dict(self.as_dict())

    def identity(self) -> str:
        """SHA-256 of everything that decides the result: two runs with one identity have the same bits on
        one kind of machine.
        """
        parts = self.canonical().as_dict()
        del parts["runtime"], parts["data"]["root"], parts["data"]["download"]
        rounding = {"threads": self.runtime.threads, "gpu": self.runtime.gpu_fraction > 0}
        if rounding != {"threads": 1, "gpu": False}:
            parts["rounding"] = rounding
        omitted_when_default = {
            "data": ("validation", "samples"),
            "federation": ("survey", "measures", "weighting"),
        }
        for section, name in (
            (section, name) for section, names in omitted_when_default.items() for name in names
        ):
            if not parts[section][
                name
            ]:  # these are omitted_when_default than the identities of runs without them
                del parts[section][name]
        for section, usual in (("numerics", Numerics()), ("faults", Faults()), ("privacy", Privacy())):
            if parts[section] == dataclasses.asdict(usual):
                del parts[section]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RunConfig:
        """From nested mappings (a TOML file, run.json); unknown keys are errors that list the nearest."""
        parts: dict[str, Any] = {}
        _known("", values, [f.name for f in dataclasses.fields(RunConfig)])
        for name, value in values.items():
            parts[name] = _section(name, SECTIONS[name], value) if name in SECTIONS else value
        if not isinstance(parts.get("args", {}), Mapping):
            raise UsageError(f"[args] is {parts['args']!r}, wanted a table of the method's arguments")
        for name, kind in (("method", str), ("seed", int)):
            if name in parts:
                parts[name] = _typed(name, parts[name], kind)
        return RunConfig(**parts)


def _known(where: str, values: Mapping[str, Any], names: list[str]) -> None:
    for key in values:
        if key not in names:
            homes = [
                f"[{name}]"
                for name, kind in SECTIONS.items()
                if key in (f.name for f in dataclasses.fields(kind))
            ]
            if where and key in ("method", "seed"):
                homes.append("the lines before any [section]")
            if homes:
                raise UsageError(
                    f"key {key!r} in {where or 'no section'}: it belongs in {' or '.join(homes)}"
                )
            raise UnknownNameError(f"key in {where or 'the configuration'}", key, names)


def _section(name: str, kind: type[Any], value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise UsageError(f"[{name}] is {value!r}, wanted a table")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    _known(f"[{name}]", value, list(fields))
    return kind(**{key: _typed(f"{name}.{key}", one, fields[key].type) for key, one in value.items()})


def _typed(name: str, value: Any, annotation: Any) -> Any:
    """`value` as the annotated type (an int is a float; nothing else is converted)."""
    text = annotation if isinstance(annotation, str) else annotation.__name__
    kinds = [part.strip() for part in text.split("|")]
    if value is None and "None" in kinds:
        return None
    if "float" in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    accepted = {"int": int, "str": str, "bool": bool}
    for kind in kinds:
        if kind.startswith("Mapping") and isinstance(value, Mapping):
            return dict(value)
        if (
            kind in accepted
            and isinstance(value, accepted[kind])
            and (kind == "bool") == isinstance(value, bool)
        ):
            return value
    raise UsageError(f"{name} = {value!r} is a {type(value).__name__}, wanted {text}")


def _check_types(config: RunConfig) -> None:
    """Every field of every section is of its type: ranges are compared next."""
    for field_ in dataclasses.fields(config):
        value = getattr(config, field_.name)
        if field_.name in SECTIONS:
            if not isinstance(value, SECTIONS[field_.name]):
                raise UsageError(f"{field_.name} = {value!r}: wanted a {SECTIONS[field_.name].__name__}")
            for one in dataclasses.fields(value):
                _typed(f"{field_.name}.{one.name}", getattr(value, one.name), one.type)
        else:
            _typed(field_.name, value, field_.type)


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise UsageError(f"{name} = {value} is below {low}")


def _check_local(local: Local) -> None:
    check_range("local.lr", local.lr, 0.0, 1e3)
    check_range("local.momentum", local.momentum, 0.0, 0.9999)
    check_range("local.weight_decay", local.weight_decay, 0.0, 10.0)
    check_range("local.epochs", local.epochs, 0.0, 1e4, open_low=True)
    if local.clip_norm is not None:
        check_range("local.clip_norm", local.clip_norm, 0.0, 1e9, open_low=True)
    for name, low in (("batch_size", 1), ("min_steps", 1), ("warmup_rounds", 0)):
        _at_least(f"local.{name}", getattr(local, name), low)


def _check_federation(federation: Federation) -> None:
    _at_least("federation.rounds", federation.rounds, 1)
    _at_least("federation.eval_every", federation.eval_every, 1)
    _at_least("federation.survey", federation.survey, 0)
    for name in federation.measures.split(",") if federation.measures else ():
        check_choice("federation.measures", name.strip(), MEASURES)
    check_range("federation.participation", federation.participation, 0.0, 1.0, open_low=True)
    if federation.weighting:
        check_choice("federation.weighting", federation.weighting, WEIGHTINGS)


def _check_runtime(runtime: Runtime) -> None:
    check_choice("runtime.execution", runtime.execution, EXECUTIONS)
    for name, low in (("actors", 0), ("clients_per_actor", 0), ("threads", 1), ("max_restarts", 0)):
        _at_least(f"runtime.{name}", getattr(runtime, name), low)
    _at_least("runtime.checkpoint_every", runtime.checkpoint_every, 1)
    _at_least("runtime.keep_checkpoints", runtime.keep_checkpoints, 1)
    share = runtime.gpu_fraction
    check_range("runtime.gpu_fraction", share, 0.0, 1.0)
    if share and (not math.isclose(1 / share, round(1 / share), rel_tol=1e-3)):
        raise UsageError(
            f"runtime.gpu_fraction = {share} is not 1/k: actors that do not fill a GPU can wait for ever "
            f"(Ray); "
            f"nearest: {1 / math.ceil(1 / share):.4f} or {1 / max(1, math.floor(1 / share)):.4f}"
        )

"""The configuration of a run as plain data: immutable, validated, and stored beside the run's results.

This module imports neither torch nor Ray.
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
MEASURES = ("memory", "spectrum")  # core/measures/{client_memory,feature_spectrum}.py
WEIGHTINGS = ("samples", "clients")
STYLES = ("auto", "plain", "map", "map-authors", "fedmr")


@dataclass(frozen=True)
class Data:
    """Which data a run uses, and how they are divided among the clients.

    Attributes:
        dataset: Name of the data set, a reference such as "csv:table.csv?label=y", or a `raffed.Dataset`.
            `raffed datasets` lists names and kinds of references.
        split: Name of the rule that divides the data among clients, such as "p10c2". `raffed splits` lists
            the rules.
        root: Folder of the data files. Default None: the folder in the environment variable RAFFED_DATA.
        download: Whether missing data files may be downloaded. Default False.
        transform: Whose preprocessing and augmentation are used: "plain", "map", "map-authors" or "fedmr".
            "auto" (the default) means the style of the split: "map" for incomplete and Dirichlet splits,
            "fedmr" for pXcY and iid, what the file records for file:PATH, and "plain" otherwise.
        local_test: Fraction of each client's samples that is held out as its local test part, in [0, 0.9].
            Default None: 0 for iid and pXcY, and 0.2 otherwise.
        validation: Fraction of each client's training samples that it is scored on and does not train on, in
            [0, 0.9]. It allows hyperparameters to be chosen without looking at test data. Default 0: none.
        samples: Size of the training pool, with equally many samples of every class, drawn by the seed.
            Default 0: all samples.
    """

    dataset: str = "digits"
    split: str = "p10c2"
    root: str | None = None
    download: bool = False
    transform: str = "auto"
    local_test: float | None = None
    validation: float = 0.0
    samples: int = 0

    def __post_init__(self) -> None:
        # A data set made in Python puts its arrays into the cache and is referred to by their hash
        if (refer := getattr(self.dataset, "reference", None)) is not None:
            object.__setattr__(self, "dataset", refer())


@dataclass(frozen=True)
class Model:
    """Which neural network a run trains.

    Attributes:
        name: Name of the network. `raffed models` lists the names.
        args: Keyword arguments of the network's factory. Default: none.
    """

    name: str = "mlp"
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Federation:
    """How many rounds a run has, who takes part in them, and when models are evaluated.

    Attributes:
        rounds: Number of rounds T, at least 1.
        participation: Fraction Q of clients that take part in a round, in (0, 1]. In every round, round(Q·N)
            of the N clients, but at least one, are drawn uniformly without replacement.
        eval_every: The global model is evaluated every `eval_every` rounds, and after the last round. The
            participants' models are evaluated on their local test parts in the same rounds. At least 1.
        survey: Number of last rounds in which the participants' models are evaluated as well. After the last
            round, all clients' models are scored on their local test parts as they stand at that time.
            Default 0: no survey.
        measures: Additional measurements after the last round, as names of `MEASURES` separated by commas.
            Default "": none.
        weighting: Weights p_k of the mean of the uploads: "samples" for n_k / Σ n, or "clients" for 1/|S|.
            Default "": the method's own weights.
    """

    rounds: int = 20
    participation: float = 1.0
    eval_every: int = 1
    survey: int = 0
    measures: str = ""
    weighting: str = ""

    def participants(self, clients: int) -> int:
        """Return the number of participants |S_t| = round(Q·N) of a round, at least 1.

        Args:
            clients: Number N of all clients.
        """
        return max(1, round(self.participation * clients))

    def asks(self, name: str) -> bool:
        """Return whether `measures` contains the name of an additional measurement."""
        return name in (one.strip() for one in self.measures.split(","))


@dataclass(frozen=True)
class Numerics:
    """How the arithmetic is carried out.

    Each mode is deterministic. The results of two modes differ by rounding.

    Attributes:
        cohort: Number of clients that are stacked and stepped together, at least 0. The result of a stacked
            run is reproducible bit for bit wherever its clients are placed. Default 0: one client after the
            other.
        precision: "fp32" (the default), or "bf16" for the forward and backward passes of training. With
            "bf16", weights, losses, sums and evaluation stay in float32.
    """

    cohort: int = 0
    precision: str = "fp32"


@dataclass(frozen=True)
class Runtime:
    """Where and how a run is executed.

    These settings change no bit of the result, with three exceptions that change rounding: `threads`, whether
    GPUs compute, and the cohort that `execution="auto"` may choose.

    Attributes:
        execution: "ray" (the default), "serial", or "auto". "auto" measures with a short probe which of the
            two is faster, and whether stacking clients helps.
        actors: Number of client actors, at least 0. Default 0: as many as there are cores, or 1/gpu_fraction
            for each GPU.
        clients_per_actor: Number of clients that one actor trains. With 1, each client is an actor of its
            own. Default 0: chosen automatically.
        gpu_fraction: Share of a GPU that each actor gets, which must be 1/k for a whole number k. Default 0:
            train on the CPU.
        threads: Torch threads per actor, at least 1. Default 1.
        address: Address of a Ray cluster, or "auto" for the cluster to which this machine belongs. Default
            None: start a Ray for this run on this machine.
        max_restarts: How many lost actors are replaced in a run before it ends with an error, at least 0.
            Default 10.
        checkpoint_every: Number of rounds between checkpoints, at least 1. Default 10.
        keep_checkpoints: Number of latest checkpoints that are kept, at least 1. Default 3.
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
    """One run: one method with its arguments, on one data set, split, model and federation, with one seed.

    Attributes:
        method: Name of the method. `raffed methods` lists the names.
        args: The method's arguments by name. `raffed methods NAME` lists them. Default: the method's own
            defaults.
        data: The data, and how they are divided among clients.
        model: The neural network.
        local: How clients train.
        federation: Rounds, participation and evaluation.
        numerics: Precision, and whether clients are stacked.
        faults: Planned faults. Default: none.
        privacy: Differential privacy and masks. Default: neither.
        runtime: Where and how the run is executed.
        seed: Seed of every random choice of the run, in [0, 2^31). Default 0.

    Raises:
        UsageError: A field has a wrong type, a value outside its range, or two fields contradict each other.

    Example:
        RunConfig(method="fedprox", args={"mu": 0.01}, federation=Federation(rounds=50))
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
        """Return the same configuration with one spelling of every number.

        An int that was given for a float becomes that float.
        """
        return RunConfig.from_dict(self.as_dict())

    def identity(self) -> str:
        """Return the SHA-256 of all settings that determine the result.

        Two runs with the same identity have the same result, bit for bit, on the same kind of machine.
        Settings that were added later are left out while they have their default, so that the identities of
        older runs stay valid.
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
            if not parts[section][name]:  # keeps the identities of runs that are older than these settings
                del parts[section][name]
        for section, usual in (("numerics", Numerics()), ("faults", Faults()), ("privacy", Privacy())):
            if parts[section] == dataclasses.asdict(usual):
                del parts[section]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RunConfig:
        """Make a configuration from nested mappings, as read from a TOML file or from run.json.

        Args:
            values: Field or section name → value. Everything that is not given has its default.

        Returns:
            The validated configuration.

        Raises:
            UnknownNameError: A key is unknown. The message lists the nearest keys.
            UsageError: A key stands in the wrong section, or a value is invalid.
        """
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
    """Return `value` if it has the annotated type. An int for a float is converted, and nothing else."""
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
    """Check the type of every field of every section. Ranges are checked afterwards."""
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

"""Sections of a run's configuration: data, model, privacy, clock, numerics and runtime.

Each field is declared once: its type, range or choices, default and meaning. The sections `local`,
`federation` and `faults` have files of their own. This module imports neither torch nor
Ray.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from raffed.budget import file_bytes
from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.config.training import Local
from raffed.config.validation import (
    Doc,
    Importable,
    Name,
    Range,
    StoredData,
    StoredSplit,
    Value,
    check_fields,
    keep,
)
from raffed.errors import UsageError
from raffed.own.names import as_name

Execution: TypeAlias = Literal["ray", "serial"]
Convolutions: TypeAlias = Literal["torch", "compiled"]


@dataclass(frozen=True)
class Data:
    """Which data a run uses, and how they are divided among the clients."""

    dataset: Annotated[
        Name[Importable | StoredData],
        Doc(
            "Name of the data set, or data of your own such as csv:table.csv?label=y, see `raffed datasets`."
        ),
    ] = Name("digits")
    split: Annotated[
        Name[Importable | StoredSplit],
        Doc(
            "Rule that divides the data among clients, such as p10c2, see `raffed splits`; for your own "
            "./file.py:NAME or package.module:NAME. In Python it may be the function itself, which is stored "
            "as its reference."
        ),
    ] = Name("p10c2")
    root: Annotated[
        str | None, Doc("Folder of the data files; without it: the one in the variable RAFFED_DATA.")
    ] = None
    download: Annotated[bool, Doc("Whether missing data files may be downloaded.")] = False
    transform: Annotated[
        Literal["auto", "plain", "map", "map-authors", "fedmr"],
        Doc(
            "Whose preprocessing and augmentation are used. `auto` means the style of the split: `map` for "
            "incomplete and Dirichlet splits, `fedmr` for pXcY and iid, what the file records for file:PATH, "
            "and `plain` otherwise."
        ),
    ] = "auto"
    transform_args: Annotated[
        Mapping[str, Value],
        Doc(
            "Number of the preparation that replaces that of the style, such as mean=[0.1307] or "
            "std=[0.3081]; repeat for more. Also size, centre, crop_padding, padding_mode, flip, "
            "rotation_degrees and autoaugment."
        ),
    ] = field(default_factory=dict)
    pool: Annotated[
        Literal["train", "joined"],
        Doc(
            "Which samples are divided among the clients. train: the training part. joined: the training "
            "and the test part together, as in PFLlib; models are then scored on local test parts."
        ),
    ] = "train"
    local_test: Annotated[
        float | None,
        Range(0.0, 0.9),
        Doc(
            "Fraction of each client's samples that is held out as its local test part; without it: 0 for "
            "iid, pXcY, label-count and capped-dirichlet, 0.1 for lognormal and power-law, 0.25 for "
            "class-groups, 0.2 otherwise."
        ),
    ] = None
    validation: Annotated[
        float,
        Range(0.0, 0.9),
        Doc(
            "Fraction of each client's training samples that it is scored on and does not train on. It "
            "allows hyperparameters to be chosen without looking at test data."
        ),
    ] = 0.0
    samples: Annotated[
        int,
        Range(0),
        Doc(
            "Size of the training pool; 0: all samples. It has equally many samples of every class, drawn by "
            "the seed."
        ),
    ] = 0

    split_args: Annotated[
        Mapping[str, Value],
        Doc("Argument of your own split, such as clients=20; repeat for more. See `raffed splits NAME`."),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (stored := getattr(type(self.split), "stored", None)) is not None:
            text, args = stored(self.split)
            keep(self, split=text, split_args={**args, **self.split_args})
        keep(self, split=as_name(self.split))
        # A data set made in Python puts its arrays into the cache and is referred to by their hash
        refer = getattr(self.dataset, "reference", None)
        keep(self, dataset=as_name(self.dataset) if refer is None else refer())


@dataclass(frozen=True)
class Model:
    """Which neural network a run trains."""

    name: Annotated[
        Name[Importable],
        Doc(
            "Name of the network, see `raffed models`; for your own ./file.py:NAME or package.module:NAME, "
            "for torchvision's torchvision:NAME. In Python it may be the class itself, which is stored as "
            "its reference."
        ),
    ] = Name("mlp")
    args: Annotated[
        Mapping[str, Value],
        Doc("Argument of the network, such as head_bias=true; repeat for more. See `raffed models NAME`."),
    ] = field(default_factory=dict)

    init: Annotated[
        str,
        Doc("File of weights to start from, a state_dict with the network's own names; without it: random."),
    ] = ""
    init_sha256: Annotated[
        str, Doc("SHA-256 of that file. It is filled in when the configuration is made.")
    ] = ""

    def __post_init__(self) -> None:
        keep(self, name=as_name(self.name))
        if isinstance(self.init, str) and self.init and not self.init_sha256:
            content = file_bytes("model.init", self.init, "give a file of weights")
            digest = hashlib.sha256(content).hexdigest()
            keep(self, init_sha256=digest, init=str(Path(self.init).absolute()))


@dataclass(frozen=True)
class Privacy:
    """Client-level differential privacy and secure aggregation.

    Sources: McMahan et al. 2018 (DP-FedAvg) and Bonawitz et al. 2017 (secure aggregation). This is a
    simulation: noise and masks are derived from the run's seed, and noise is sampled in floating point. Two
    federations count as neighbours if they differ in one client's update, which is replaced by zero. The
    weights p_i and the choice of participants are taken as publicly known.

    Raises:
        UsageError: A value is outside its range, or `noise` is given without `clip`.
    """

    clip: Annotated[
        float | None,
        Range(0.0, 1e9, open_low=True),
        Doc(
            "S, the largest allowed norm of a client's update w_i − w^t over all shared weights. Longer "
            "updates are scaled down to it. It is available only for methods that send weights and nothing "
            "else. Methods that also send messages or BatchNorm statistics are refused in the first round, "
            "since nothing would protect these."
        ),
    ] = None
    noise: Annotated[
        float, Range(0.0, 1e6), Doc("σ, the standard deviation of the noise in units of `clip`; 0: no noise.")
    ] = 0.0
    noise_at: Annotated[
        Literal["server", "client"],
        Doc(
            "Who adds the noise, the server or each client. `server` adds N(0, (σ · S · max_i p_i)²) to "
            "every number of the mean, so the server must be trusted. `client` adds N(0, (σ · S)²) to every "
            "number of each upload, which also protects against the server."
        ),
    ] = "server"
    delta: Annotated[
        float,
        Range(0.0, 0.5, open_low=True),
        Doc("δ of the (ε, δ) guarantee that is written into the metric rows."),
    ] = 1e-5
    masks: Annotated[
        bool,
        Doc(
            "Whether uploads are added up under pairwise masks that cancel in the sum, modulo 2^64. Then "
            "what leaves an actor reveals only the total of the clients whose uploads count. It needs a "
            "method whose server needs only sums. The set of these clients is known beforehand here: "
            "recovering the masks of clients that drop out is not simulated. Masks change no bit "
            "of the result."
        ),
    ] = False

    def __post_init__(self) -> None:
        check_fields("privacy", self)
        if self.noise and self.clip is None:
            raise UsageError(
                f"privacy.noise = {self.noise} is measured in units of privacy.clip; set privacy.clip "
                "(--clip-update) too"
            )


ADVICE = "give a CSV file in UTF-8 with the columns client and factor"


@dataclass(frozen=True)
class Clock:
    """How long clients take, and whether the server waits for all of them.

    A client's training takes `seconds` times its own factor for every local step, or for its whole training
    with `work = round`. Sources: Xie, Koyejo and Gupta 2019 (FedAsync); Nguyen et al. 2022 (FedBuff).

    Raises:
        UsageError: A value is outside its range, or the trace cannot be read.
    """

    speeds: Annotated[
        Literal["", "constant", "lognormal", "trace"],
        Doc(
            "Factors of the clients; without it: no virtual clock. constant: all 1. lognormal: exp(spread · "
            "z) with z from N(0, 1), drawn once for each client. trace: those of a file."
        ),
    ] = ""
    seconds: Annotated[
        float,
        Range(0.0, 1e9, open_low=True),
        Doc("Virtual seconds of a local step (or of a training) of a client with factor 1."),
    ] = 1.0
    work: Annotated[
        Literal["step", "round"],
        Doc("Whether the time of a client grows with its number of local steps, or is that of a training."),
    ] = "step"
    spread: Annotated[float, Range(0.0, 10.0), Doc("σ of lognormal factors.")] = 0.5
    jitter: Annotated[
        float,
        Range(0.0, 10.0),
        Doc("σ of a further lognormal factor, drawn for every training of a client; 0: none."),
    ] = 0.0
    trace: Annotated[
        str, Doc("CSV file with the columns client and factor, a line for every client; for speeds = trace.")
    ] = ""
    trace_sha256: Annotated[
        str, Doc("SHA-256 of that file. It is filled in when the configuration is made.")
    ] = ""
    server: Annotated[
        Literal["waits", "fedbuff", "fedasync"],
        Doc(
            "When the server makes its next model. waits: when all participants of a round are done. "
            "fedbuff: when `buffer` uploads have arrived, from their updates. fedasync: after every upload, "
            "which is mixed into its model. A round is one step of the server."
        ),
    ] = "waits"
    buffer: Annotated[
        int,
        Range(0),
        Doc("K, number of uploads of a step of FedBuff; 0: as many as clients train at a time."),
    ] = 0
    mixing: Annotated[
        float,
        Range(0.0, 100.0, open_low=True),
        Doc("α of FedAsync, at most 1, or the server's rate η of FedBuff; 0.6 is usual for FedAsync."),
    ] = 1.0
    staleness: Annotated[
        Literal["polynomial", "hinge", "constant"],
        Doc(
            "s(τ), by which the weight of an upload is multiplied whose client began τ steps of the server "
            "ago. polynomial: (1 + τ)^−a. hinge: 1 up to τ = b, then 1 / (a(τ − b) + 1). constant: 1."
        ),
    ] = "polynomial"
    staleness_a: Annotated[float, Range(0.0, 1e6), Doc("a of s(τ).")] = 0.5
    staleness_b: Annotated[int, Range(0), Doc("b of s(τ), for hinge.")] = 4

    def __post_init__(self) -> None:
        check_fields("clock", self)
        if self.trace and not self.trace_sha256:
            digest = hashlib.sha256(file_bytes("clock.trace", self.trace, ADVICE)).hexdigest()
            keep(self, trace_sha256=digest, trace=str(Path(self.trace).absolute()))

    def check_together(self) -> None:
        """Raise a UsageError if two fields contradict each other, or if one has no effect."""
        usual = {name: field.default for name, field in type(self).__dataclass_fields__.items()}
        given = [name for name, value in usual.items() if getattr(self, name) != value]
        if not self.speeds and given:
            raise UsageError(
                f"clock.{given[0]} has no effect without clock.speeds; give --speeds too, such as constant"
            )
        if bool(self.trace) != (self.speeds == "trace"):
            raise UsageError(
                f"clock.trace = {self.trace!r} with clock.speeds = {self.speeds!r}: a trace needs both "
                "--speeds trace and --trace FILE"
            )
        if self.buffer and self.server != "fedbuff":
            raise UsageError(f"clock.buffer = {self.buffer} is for clock.server = 'fedbuff'; leave it out")
        if self.server == "fedasync" and self.mixing > 1.0:
            raise UsageError(f"clock.mixing = {self.mixing} must be at most 1 with clock.server = 'fedasync'")

    @property
    def asynchronous(self) -> bool:
        """Whether the server makes its next model before all clients are done."""
        return self.server != "waits"

    def discount(self, staleness: int) -> float:
        """Return s(τ).

        Args:
            staleness: τ, the steps of the server since the client began.
        """
        if self.staleness == "constant":
            return 1.0
        if self.staleness == "polynomial":
            return float((1.0 + staleness) ** -self.staleness_a)
        beyond = max(0, staleness - self.staleness_b)
        return 1.0 / (self.staleness_a * beyond + 1.0)

    def traced(self, clients: int) -> list[float]:
        """Return the factors in the trace, one for each client.

        Args:
            clients: Number of clients N.

        Raises:
            UsageError: The file has changed, or does not have one positive factor for each client.
        """
        raw = file_bytes("clock.trace", self.trace, ADVICE)
        if hashlib.sha256(raw).hexdigest() != self.trace_sha256:
            raise UsageError(f"{self.trace} has changed since the run was made; put it back")
        trace: dict[int, float] = {}
        for number, row in self._rows(raw):
            try:
                client, factor = int(row["client"]), float(row["factor"])
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(
                    f"{self.trace}, line {number}: a line needs a whole number `client` and a number `factor`"
                ) from error
            if not 0.0 < factor < math.inf or client in trace:
                why = (
                    "is there twice" if client in trace else f"has the factor {factor}, which must be above 0"
                )
                raise UsageError(f"{self.trace}, line {number}: client {client} {why}")
            trace[client] = factor
        missing = [client for client in range(clients) if client not in trace]
        if missing:
            raise UsageError(f"{self.trace} has no line for client {missing[0]} of {clients} clients")
        return [trace[client] for client in range(clients)]

    def _rows(self, raw: bytes) -> list[tuple[int, dict[str, str]]]:
        """Return the rows of the trace below its header, with their lines. Line ends may be of any kind."""
        try:
            reader = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=None))
            return [(reader.line_num, row) for row in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self.trace} cannot be read as a table ({error}); {ADVICE}") from error


@dataclass(frozen=True)
class Numerics:
    """How the arithmetic is carried out.

    Each mode is deterministic. The results of two modes differ by rounding.
    """

    cohort: Annotated[
        int,
        Range(0),
        Doc(
            "Number of clients that are stacked and stepped together; 0: one client after the other. The "
            "result of a stacked run is reproducible bit for bit wherever its clients are placed."
        ),
    ] = 0
    precision: Annotated[
        Literal["fp32", "bf16"],
        Doc(
            "Precision of the forward and backward passes of training. Weights, losses, sums and evaluation "
            "stay in float32."
        ),
    ] = "fp32"
    bits: Annotated[
        Literal["machine", "portable"],
        Doc(
            "machine: the fastest instructions of each processor, so bits hold on one kind of processor. "
            "portable: the same bits on every x86-64 processor with AVX2, on Linux, on one thread of the CPU."
        ),
    ] = "machine"
    convolutions: Annotated[
        Convolutions,
        Doc(
            "Who computes convolutions. torch: its own libraries. compiled: a kernel of raffed, which is "
            "faster for small and middle-sized ones of stride 1 on a CPU, and needs a C compiler at "
            "installation."
        ),
    ] = "torch"


@dataclass(frozen=True)
class Runtime:
    """Where and how a run is executed.

    These settings change no bit of the result, with two exceptions that change rounding: `threads`, and
    whether GPUs compute.
    """

    execution: Annotated[
        Execution,
        Doc("ray: client actors, one a core or share of a GPU, serial: this process."),
    ] = "ray"
    actors: Annotated[
        int, Range(0), Doc("Number of client actors; 0: as many as there are cores or shares of GPUs.")
    ] = 0
    clients_per_actor: Annotated[
        int,
        Range(0),
        Doc("Number of clients that one actor trains; 0: automatic. With 1, each client is an actor."),
    ] = 0
    gpu_fraction: Annotated[
        float, Range(0.0, 1.0), Doc("Share of a GPU that each actor gets, 1/k for a whole k; 0: the CPU.")
    ] = 0.0
    threads: Annotated[int, Range(1, 1024), Doc("Torch threads per actor.")] = 1
    address: Annotated[
        str | None,
        Doc(
            "Address of a Ray cluster, or auto for the one to which this machine belongs; without it: a Ray "
            "is started on this machine for the run."
        ),
    ] = None
    max_restarts: Annotated[
        int, Range(0), Doc("How many lost actors are replaced in a run before it ends with an error.")
    ] = 10
    author_python: Annotated[
        str,
        Doc("Interpreter that executes an author's engine (pfllib:PATH#NAME); without it: this one."),
    ] = ""
    author_timeout: Annotated[
        float,
        Range(1.0),
        Doc("Most seconds that an author's engine may take for a round; then its process is ended."),
    ] = 3600.0
    checkpoint_every: Annotated[int, Range(1), Doc("Number of rounds between checkpoints.")] = 10
    keep_checkpoints: Annotated[int, Range(1), Doc("Number of latest checkpoints that are kept.")] = 3

    def check_share(self) -> None:
        """Raise a UsageError unless `gpu_fraction` is 0 or 1/k for a whole number k."""
        share = self.gpu_fraction
        if share and not math.isclose(1 / share, round(1 / share), rel_tol=1e-3):
            raise UsageError(
                f"runtime.gpu_fraction = {share} is not 1/k: Ray may never start actors that do not fill "
                f"a GPU; nearest allowed: {1 / math.ceil(1 / share):.4f} or "
                f"{1 / max(1, math.floor(1 / share)):.4f}"
            )


Section: TypeAlias = Data | Model | Local | Federation | Numerics | Faults | Privacy | Clock | Runtime
SECTIONS: dict[str, type[Section]] = {
    "data": Data,
    "model": Model,
    "local": Local,
    "federation": Federation,
    "numerics": Numerics,
    "faults": Faults,
    "privacy": Privacy,
    "clock": Clock,
    "runtime": Runtime,
}

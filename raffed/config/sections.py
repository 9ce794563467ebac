"""Sections of a run's configuration: data, model, federation, numerics and runtime.

Each field is declared once: its type, range or choices, default and meaning. The sections `local`,
`federation`, `faults`, `privacy` and `clock` have files of their own. This module imports neither torch nor
Ray.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from raffed.budget import file_bytes
from raffed.config.clock import Clock
from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.config.names import Importable, Name, StoredData, StoredSplit, keep
from raffed.config.privacy import Privacy
from raffed.config.training import Local
from raffed.config.validation import Doc, Range, Value
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

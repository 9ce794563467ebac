"""Studies: figures that are not tables of federated runs. The entry points `raffed.studies` name them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from raffed.errors import check_choice
from raffed.runtime.machine import deterministic_kernels, set_threads

STUDY_FILE = "study.json"


def _silent(what: str, share: float) -> None:
    """Ignore reports of progress."""


@dataclass(frozen=True)
class Work:
    """One study to be executed at a scale with a seed, in a folder of its own.

    The same study, scale, seed, device and threads give the same bits.

    Attributes:
        root: The data folder; None means RAFFED_DATA.
        tell: Called with what is being done, and with the share of all work done, in [0, 1].
        device: "cpu" or "cuda".
        threads: Number of torch threads.
    """

    study: str
    scale: str
    seed: int
    folder: Path
    root: str | None = None
    tell: Callable[[str, float], None] = _silent
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class StudyInfo:
    """What a study shows, how long it takes, and what it reads.

    It maps each scale to the seconds on two slow cores without a GPU, and to the data sets. The seconds at
    smoke scale, and at proxy scale of MAP's Figs. 5, 6 and 8 and of the leakage, were measured. The others
    are computed from their numbers of steps.
    """

    title: str
    seconds: Mapping[str, float]
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def _packages() -> dict[str, Mapping[str, StudyInfo]]:
    """Return package → its studies. Each study is a module of its package."""
    return {entry.module: entry.load() for entry in entry_points(group="raffed.studies")}


def studies() -> dict[str, StudyInfo]:
    """Return every study that is installed, by its name. It does not import torch."""
    return {name: info for known in _packages().values() for name, info in known.items()}


def execute_study(work: Work) -> None:
    """Execute a study from its beginning. Earlier contents of its folder are replaced."""
    check_choice("study", work.study, studies())
    import torch

    if torch.device(work.device).type == "cuda":
        deterministic_kernels()
    (package,) = (package for package, known in _packages().items() if work.study in known)
    module, threads = importlib.import_module(f"{package}.{work.study}"), torch.get_num_threads()
    set_threads(work.threads)
    try:
        module.run(work)
    finally:
        set_threads(threads)

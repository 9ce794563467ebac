"""What the papers' figures show and no table of federated runs does: one module for each study.

Listing the studies does not import torch. To add one, write a module of this package with `run(work: Work) ->
None`, which writes through `record.Recorder`. Then add an entry in STUDIES, its name in an item of
raffed/experiments/papers, and the way from its name to figures and tables in analysis/studies/study.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raffed.errors import check_choice
from raffed.runtime.machine import deterministic_kernels
from raffed.runtime.torch_settings import set_threads

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


STUDIES: dict[str, StudyInfo] = {
    "averaged_classifiers": StudyInfo(
        "The mean of three local classifiers (FedMR, Fig. 2)", {"smoke": 1.0, "proxy": 1.0, "full": 1.0}
    ),
    "features_2d": StudyInfo(
        "Features in two dimensions (MAP, Fig. 5)",
        {"smoke": 3.0, "proxy": 100.0, "full": 2000.0},
        {"proxy": ("fashion-mnist",), "full": ("mnist",)},
    ),
    "features_tsne": StudyInfo(
        "Representations by t-SNE (MpFedcon, Fig. 4)",
        {"smoke": 4.0, "proxy": 180.0, "full": 400000.0},
        {"proxy": ("cifar10",), "full": ("cifar10",)},
    ),
    "leakage": StudyInfo(
        "What a server reads out of gradients (MpFedcon, Fig. 10 and Table 4)",
        {"smoke": 30.0, "proxy": 1200.0, "full": 75_000.0},
        {"proxy": ("cifar10",), "full": ("cifar10", "cifar100")},
    ),
    "proxy_statistics": StudyInfo(
        "Norms and distances of the class proxies (MAP, Fig. 6)",
        {"smoke": 2.0, "proxy": 30.0, "full": 90000.0},
        {"proxy": ("cifar10",), "full": ("cifar10",)},
    ),
    "solo_drift": StudyInfo(
        "SOLO and FedAvg drift apart (MpFedcon, Fig. 3)",
        {"smoke": 2.0, "proxy": 90.0, "full": 40000.0},
        {"proxy": ("cifar10",), "full": ("cifar10",)},
    ),
    "targeted_classes": StudyInfo(
        "Networks for targeted classes (MAP, Fig. 7)",
        {"smoke": 2.0, "proxy": 60.0, "full": 1000000.0},
        {"proxy": ("cifar10",), "full": ("cifar100",)},
    ),
    "two_client_demo": StudyInfo(
        "Two clients, seen from inside (MAP, Fig. 8)",
        {"smoke": 2.0, "proxy": 150.0, "full": 1000.0},
        {"proxy": ("fashion-mnist",), "full": ("mnist",)},
    ),
}


def execute_study(work: Work) -> None:
    """Execute a study from its beginning. Earlier contents of its folder are replaced."""
    check_choice("study", work.study, STUDIES)
    import torch

    if torch.device(work.device).type == "cuda":
        deterministic_kernels()
    module, threads = importlib.import_module(f"raffed.studies.{work.study}"), torch.get_num_threads()
    set_threads(work.threads)
    try:
        module.run(work)
    finally:
        set_threads(threads)

"""What the papers' figures show and no table of federated runs does: one module for each study.

Listing the studies does not import torch. To add one, write a module of this package with `run(work: Work) ->
None`, which writes through `record.Recorder`. Then add an entry in STUDIES, its name in an item of a paper,
and a painter in `figures`, which makes figures and tables of what was written.
"""

from __future__ import annotations

from raffed.tables.items import StudyInfo

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

"""PFLlib's leaderboard (Zhang et al., JMLR 2025): T6, also GPFL's Table 1, and T7.

PFLlib scores most methods after the download and before training, with all clients and by samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from raffed import Claim, Data, Federation, Local, Model, RunConfig
from raffed.tables.items import Cell, Published, shortened

from .common import GLOBAL, HALVED, PERSONAL, Printed, TableRow, ahead, cells, item

ROUNDS = 2000
LOCAL = Local(lr=0.005, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=1, drop_last=True)
DOWNLOADED, BETWEEN = "downloaded_weighted_best", "between_weighted_best"
GLOBALS = (
    TableRow("FedAvg", "fedavg", measure=DOWNLOADED),
    TableRow("FedProx", "fedprox", measure=DOWNLOADED),
)
PERSONALS = (
    TableRow("Per-FedAvg", "perfedavg", {"inner_lr": 0.005, "outer_lr": 0.005}, weighting="samples"),
    TableRow("pFedMe", "pfedme", measure="personal_weighted_best"),
    TableRow("Ditto", "ditto"),
    TableRow("APFL", "apfl", target=False),
    TableRow("FedPer", "fedper"),
    TableRow("FedRep", "fedrep", {"head_epochs": 1.0, "body_epochs": 1.0}),
    TableRow("FedROD", "fedrod", printed="FedRoD"),
    TableRow("FedPHP", "fedphp", {"transfer": "mmd"}, measure="local_weighted_best"),
    TableRow("FedProto", "fedproto", {"predict_by": "prototype"}),
    TableRow("FedALA", "fedala", target=False),
    TableRow("FedBABU", "fedbabu", {"epochs": 10.0}, target=False, measure="personal_weighted_last"),
    TableRow("FedDBE", "feddbe", target=False),
    TableRow("FedAMP (local training)", "solo", printed="FedAMP"),
)
ABSENT = {
    "FedGen": "raffed has no such method (a generator on the server)",
    "FedFomo": (
        "the program judges models by the last fifth of what a client trains with, and begins with the model "
        "of one round before, so its 99.46 and 97.21 (Fashion-MNIST) are not of the paper's `fedfomo`"
    ),
    "APPLE": "raffed has no such method (every client learns the weights of all other clients' models)",
    "FedCP": "raffed has no such method (a policy that separates features)",
    "GPFL": "raffed has no such method (trainable class embeddings with conditional valves)",
    "FedDistill": "raffed has no such method (class-wise mean logits are shared)",
}
SOURCE = "PFLlib, docs/benchmark.html (TsingZ0/PFLlib d832e76), and GPFL's Table 1 for FedPHP"
PROTOCOL = "best round of 2,000 by Σ correct / Σ test samples over all clients, mean ± deviation of 3 trials"
REPEATS = {"pfllib": 3}  # of GPFL's table it is not known
DEFECTS = (
    "Its FedAMP trains each client's own model alone: the mixture enters a penalty that has no gradient "
    "(clientamp.py). So `solo` is run in this row, and the paper's method is `fedamp`.",
    "The strengths μ, λ and K are printed nowhere; the defaults of its main.py (μ = 0) would make FedProx "
    "FedAvg and Ditto local training. raffed's defaults are run.",
    "Whether all methods ran 2,000 rounds is not said. Its README says that results may not come back, "
    "because older versions did not shuffle.",
    "PFLlib's APFL trains its personal model on its own loss and mixes once a round; raffed's is the "
    "paper's, so its number is no target. Those of FedALA, FedBABU and FedDBE are none either, because their "
    "settings are not printed.",
    "PFLlib's MMD in FedPHP has fixed bands of 10, 15, 20 and 50; raffed's has the median.",
)
MAY_DIFFER = ("federation.weighting",)


def column_base(
    dataset: str,
    split: str,
    transform: Literal["plain", "map-authors"],
    numbers: Mapping[str, Sequence[float]],
    rounds: int = ROUNDS,
) -> RunConfig:
    """Return FedAvg's run of a column: 20 clients, of which each keeps a quarter for its test."""
    data = Data(
        dataset, split, pool="joined", transform=transform, local_test=0.25, transform_args=dict(numbers)
    )
    federation = Federation(rounds, survey=rounds)
    return RunConfig("fedavg", {}, data, Model("cnn_pfllib"), LOCAL, federation)


def column_cells(column: str, run: RunConfig, table: str, dataset: str, other: str = "") -> Iterator[Cell]:
    """Return the cells of all rows in a column.

    Args:
        column: Name of the column.
        run: FedAvg's run of it.
        table: Table of PFLlib's page.
        dataset: Name of the column in the csv.
        other: Name of the column in GPFL's table, which alone prints FedPHP; "" if it has none.
    """
    for row in GLOBALS:
        yield from cells(row, column, run, [Printed("pfllib", table, dataset, GLOBAL)])
    for row in PERSONALS:
        whose = Printed("pfllib", table, dataset, PERSONAL)
        if row.name == "FedPHP":
            if not other:
                continue
            whose = Printed("gpfl", "1", other, PERSONAL)
        yield from cells(row, column, run, [whose])


# T6: Fashion-MNIST

FMNIST_COLUMNS = {  # column → split, name in the csv
    "pathological": ("class-groups:20:2:pfllib:1", "FMNIST pat2"),
    "Dir 0.1": ("capped-dirichlet:20:0.1:40:pfllib:0:1", "FMNIST Dir0.1"),
}
PROXY_ROUNDS = 150


def proxy(full: RunConfig) -> RunConfig:
    """Return the same run with 150 of the 2,000 rounds."""
    return replace(full, federation=shortened(full.federation, PROXY_ROUNDS))


AHEAD = [row.name for row in PERSONALS if row.target]
FMNIST_CLAIMS = (
    *(
        ahead(row, "FedAvg", column, gap)
        for column, gap in (("pathological", 10.0), ("Dir 0.1", 5.0))
        for row in AHEAD
    ),
    *(
        Claim.above(f"{row} is above Per-FedAvg in Dir 0.1", row, "Per-FedAvg", "Dir 0.1")
        for row in AHEAD
        if row != "Per-FedAvg"
    ),
)
FMNIST = item(
    "pfllib-fmnist",
    "PFLlib's leaderboard, Fashion-MNIST",
    BETWEEN,
    tuple(
        cell
        for column, (split, name) in FMNIST_COLUMNS.items()
        for cell in column_cells(
            column, column_base("fashion-mnist", split, "map-authors", {}), "leaderboard", name, name
        )
    ),
    margin=0.16,  # √(mean s²) of the 22 printed deviations is 0.154; half of the largest gain is 9.6
    note=(
        f"at proxy scale {PROXY_ROUNDS} rounds; no order is claimed between personal methods except that "
        "Per-FedAvg is the last"
    ),
    proxy=proxy,
    claims=FMNIST_CLAIMS,
    published=Published(
        SOURCE,
        PROTOCOL,
        "Fashion-MNIST and a GPU, or one CPU core at proxy scale",
        "10.5 million steps a run, about 40 hours on one core; 786,000 steps at proxy scale",
        DEFECTS,
        ABSENT,
        may_differ=MAY_DIFFER,
        repeats=REPEATS,
    ),
)


# T7: CIFAR-100, with the table of heterogeneity. It needs a GPU

CIFAR100_COLUMNS = {  # column → split, table, name in the csv, name in GPFL's
    "pathological": ("class-groups:20:10:pfllib:1", "leaderboard", "CIFAR-100 pat10", "CIFAR-100 pat10"),
    "Dir 0.1": (
        "capped-dirichlet:20:0.1:40:pfllib:0:1",
        "leaderboard",
        "CIFAR-100 Dir0.1",
        "CIFAR-100 Dir0.1",
    ),
    **{
        f"Dir {beta}": (
            f"capped-dirichlet:20:{beta}:40:pfllib:0:1",
            "heterogeneity",
            f"CIFAR-100 Dir{beta}",
            "",
        )
        for beta in ("0.01", "0.5", "5")
    },
}
CIFAR100 = item(
    "pfllib-cifar100",
    "PFLlib's leaderboard, CIFAR-100",
    BETWEEN,
    tuple(
        cell
        for column, (split, table, name, other) in CIFAR100_COLUMNS.items()
        for cell in column_cells(column, column_base("cifar100", split, "plain", HALVED), table, name, other)
    ),
    margin=0.69,  # √(mean s²) of the 52 printed deviations is 0.689; half of the largest gain is 26.8
    note=f"at proxy scale {PROXY_ROUNDS} rounds",
    proxy=proxy,
    claims=tuple(
        ahead(row, "FedAvg", column, 10.0) for column in ("pathological", "Dir 0.1") for row in AHEAD
    ),
    published=Published(
        SOURCE,
        PROTOCOL,
        "CIFAR-100 and a GPU",
        "9 million steps a run, an estimated 5 to 10 hours on one GPU, not measured",
        DEFECTS,
        ABSENT,
        may_differ=MAY_DIFFER,
        repeats=REPEATS,
    ),
)

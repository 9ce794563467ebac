"""T7: PFLlib's leaderboard and its table of heterogeneity, CIFAR-100. It needs a GPU and CIFAR-100."""

from __future__ import annotations

from raffed import Claim
from raffed.tables.items import Item, Published

from .common import CHECKER, HALVED
from .pfllib import (
    ABSENT,
    BETWEEN,
    DEFECTS,
    MAY_DIFFER,
    PERSONALS,
    PROTOCOL,
    REPEATS,
    SOURCE,
    column_base,
    column_cells,
)
from .pfllib_fmnist import PROXY_ROUNDS, proxy

COLUMNS = {  # column → split, table, name in the csv, name in GPFL's
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
ITEM = Item(
    CHECKER,
    "pfllib-cifar100",
    "PFLlib's leaderboard, CIFAR-100",
    BETWEEN,
    tuple(
        cell
        for column, (split, table, name, other) in COLUMNS.items()
        for cell in column_cells(column, column_base("cifar100", split, "plain", HALVED), table, name, other)
    ),
    margin=0.69,  # √(mean s²) of the 52 printed deviations is 0.689; half of the largest gain is 26.8
    note=f"at proxy scale {PROXY_ROUNDS} rounds",
    proxy=proxy,
    claims=tuple(
        Claim(
            f"{row.name} is more than 10 points above FedAvg in {column}",
            ((1.0, row.name, column), (-1.0, "FedAvg", column)),
            minus=10.0,
        )
        for column in ("pathological", "Dir 0.1")
        for row in PERSONALS
        if row.target
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

"""GLDP: the data, methods and runs of the paper, from docs/papers/gldp.md §EB.

A round of the paper visits all M stages, while ours is one exchange. So K rounds of the paper are K·M of
ours. Every run scores all clients between its last 10·M rounds. A_glo is computed from these scores, and so
is A_sel of methods without personal models. A_loc is the accuracy of the model that a client trained last,
in whatever round that was. The number of clients that were trained at all is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from raffed import Federation, Local, Model, RunConfig
from raffed.tables.catalogue import Argument, run_of
from raffed.tables.items import Cell, Item, shortened, stages_of

NAMES = {"CIFAR10": "cifar10", "CIFAR100": "cifar100", "TinyImageNet": "tiny-imagenet"}


class Way(NamedTuple):
    """A row: a method, its arguments, and where A_sel comes from if not from the clients' models.

    It also says whether the paper has this row.
    """

    method: str
    args: Mapping[str, Argument]
    a_sel: str = ""
    printed: bool = True


# Of 30 local epochs (docs/papers/gldp.md A4); FedRep divides its epochs in the same proportion
ALTERNATING = {"head_epochs": 20.0, "body_epochs": 10.0}
METHODS = {
    "FedAvg": Way("fedavg", {}),
    "FedRep": Way("fedrep", ALTERNATING),
    "FedProx": Way("fedprox", {}),
    "APFL": Way("apfl", {}),
    "GLDP-GP": Way("gldp", {**ALTERNATING, "inference": "gp"}),
    "GLDP-LP": Way("gldp", {**ALTERNATING, "inference": "lp"}),
}
# CIFAR100: 10
SERVER_DATA = {("fedic", "CIFAR10"): {"labelled": 100}, ("fedic", "TinyImageNet"): {"labelled": 5}}
BALANCING = {"FEDIC": Way("fedic", {}, a_sel="a_sel_global"), "CReFF": Way("creff", {}, a_sel="a_sel_global")}
ABLATION = {
    "GLDP full": METHODS["GLDP-LP"],  # tables 2 and 4 share this run
    "GLDP without L_LP (lambda=0)": Way("gldp", {**ALTERNATING, "lam": 0.0}),
    "GLDP without L_GP (lambda=1)": Way("gldp", {**ALTERNATING, "lam": 1.0}),
    "GLDP without L_GP and L_LP": Way("fedrep", ALTERNATING),
    "GLDP without L_GP and L_LP, by prototypes": Way(
        "gldp", {**ALTERNATING, "lp": "none", "gp": "none"}, printed=False
    ),
}
ALL = {**METHODS, **BALANCING}
# Setting → row
IN_TABLE_4 = {
    "GLDP full": "GLDP full",
    "lambda=0": "GLDP without L_LP (lambda=0)",
    "lambda=1": "GLDP without L_GP (lambda=1)",
}
VISITS = 10  # number of visits of a stage from which A_glo and A_sel are computed
Columns = list[tuple[str, str, int]]
ONE_STAGE = (("CIFAR10", ("[100,4,1]", "[100,5,1]")), ("CIFAR100", ("[100,20,1]", "[100,30,1]")))
FIVE_STAGES = (("CIFAR10", ("[20,4,5]", "[20,5,5]")), ("CIFAR100", ("[20,20,5]", "[20,30,5]")))


def columns(where: Sequence[tuple[str, Sequence[str]]], factors: Sequence[int]) -> Columns:
    return [(data, split, factor) for data, splits in where for split in splits for factor in factors]


TABLE_1 = [*columns(ONE_STAGE, (10, 50, 100)), ("TinyImageNet", "[100,20,1]", 50)]
TABLE_2 = [
    ("CIFAR10", "[20,4,5]", 50),
    ("CIFAR10", "[20,4,5]", 100),
    ("CIFAR100", "[20,20,5]", 50),
    ("CIFAR100", "[20,20,5]", 100),
    ("TinyImageNet", "[20,20,5]", 50),
]
TABLE_3 = [*columns(FIVE_STAGES, (50, 100)), ("TinyImageNet", "[20,20,5]", 50)]
FIGURE_4 = columns(FIVE_STAGES, (10, 50, 100))


def config(way: Way, dataset: str, split: str, factor: int, order: str = "inner") -> RunConfig:
    """Return a run of 50 rounds over all stages, 10 participants and 30 local epochs (docs/papers/gldp.md
    §9).

    Momentum is 0.5, as in FedRep's code.
    """
    clients, classes, stages = (int(part) for part in split.strip("[]").split(","))
    local = Local(
        lr=0.01,
        momentum=0.5,
        weight_decay=1e-4,
        batch_size=128 if dataset == "TinyImageNet" else 32,
        epochs=30,
    )
    text = f"stages:{clients}:{classes}:{stages}:if{factor}{':outer' if order == 'outer' else ''}"
    federation = Federation(50 * stages, 10 / clients, survey=VISITS * stages)
    args = {**way.args, **SERVER_DATA.get((way.method, dataset), {})}
    return run_of(way.method, NAMES[dataset], text, "resnet18", local, federation, **args)


def proxy(full: RunConfig) -> RunConfig | None:
    """Return a smaller run: Fashion-MNIST in place of CIFAR-10, a small convolutional network and 6 local
    epochs.

    Every phase has a fifth of its epochs. There are 20 rounds with one stage and 10 with several. The rate is
    five times as high, so that with five stages steps times rate is as large as in the paper's 50 rounds of
    30 epochs. With so few steps CIFAR-10 was still near chance. The global test is made in one of M rounds
    only, because no measure here uses it. Every round with several stages is surveyed, so the participants'
    models are scored in each.
    """
    if full.data.dataset != "cifar10":
        return None
    stages = stages_of(full.data)
    phases = {
        name: value / 5
        for name, value in full.args.items()
        if name in ALTERNATING and isinstance(value, int | float)
    }
    data, local = replace(full.data, dataset="fashion-mnist"), replace(full.local, lr=0.05, epochs=6.0)
    federation = shortened(full.federation, 20 if stages == 1 else 10 * stages, eval_every=stages)
    return replace(
        full,
        args={**full.args, **phases},
        data=data,
        model=Model("simplecnn"),
        local=local,
        federation=federation,
    )


def printed_at(table: str, metric: str, data: str, split: str, factor: int) -> dict[str, str]:
    """Return where a number stands in the csv, without its method."""
    return {
        "table": table,
        "dataset": data,
        "split": split,
        "imbalance_factor": str(factor),
        "metric": metric,
    }


def cells(table: str, metric: str, where: Columns, ways: Mapping[str, Way]) -> tuple[Cell, ...]:
    table_cells = []
    for data, split, factor in where:
        asked = printed_at(table, metric, data, split, factor)
        for row, way in ways.items():
            printed = {**asked, "method": row} if way.printed else {}
            measure = way.a_sel if metric == "A_sel" else ""
            table_cells.append(
                Cell(row, f"{data} {split} IF{factor}", config(way, data, split, factor), printed, measure)
            )
    return tuple(table_cells)


item = partial(Item, "gldp", proxy=proxy)

"""GLDP (STHFL), tables 1 to 4 and figures 3 and 4, from experiments-gldp-mpfedcon.md, part B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raffed.core.config import Federation, Model, RunConfig
from raffed.core.local import Local
from raffed.experiments.registry import Cell, Item, run_of

NAMES = {"CIFAR10": "cifar10", "CIFAR100": "cifar100", "TinyImageNet": "tiny-imagenet"}
METHODS = {"FedAvg": "fedavg", "FedRep": "fedrep", "FedProx": "fedprox", "APFL": "apfl", "GLDP-GP": "gldp", "GLDP-LP": "gldp"}
SERVER_DATA = {("fedic", "CIFAR10"): {"labelled": 100}, ("fedic", "TinyImageNet"): {"labelled": 5}}  # CIFAR100: 10
BALANCING = {"FEDIC": "fedic", "CReFF": "creff"}
ABLATION = {"GLDP full": {}, "GLDP without L_LP (lambda=0)": {"lam": 0.0}, "GLDP without L_GP (lambda=1)": {"lam": 1.0}}
Columns = list[tuple[str, str, int]]
ONE_STAGE = (("CIFAR10", ("[100,4,1]", "[100,5,1]")), ("CIFAR100", ("[100,20,1]", "[100,30,1]")))
FIVE_STAGES = (("CIFAR10", ("[20,4,5]", "[20,5,5]")), ("CIFAR100", ("[20,20,5]", "[20,30,5]")))


def columns(where: Sequence[tuple[str, Sequence[str]]], factors: Sequence[int]) -> Columns:
    return [(data, split, factor) for data, splits in where for split in splits for factor in factors]


TABLE_1 = [*columns(ONE_STAGE, (10, 50, 100)), ("TinyImageNet", "[100,20,1]", 50)]
TABLE_2 = [("CIFAR10", "[20,4,5]", 50), ("CIFAR10", "[20,4,5]", 100), ("CIFAR100", "[20,20,5]", 50),
           ("CIFAR100", "[20,20,5]", 100), ("TinyImageNet", "[20,20,5]", 50)]  # fmt: skip
TABLE_3 = [*columns(FIVE_STAGES, (50, 100)), ("TinyImageNet", "[20,20,5]", 50)]
FIGURE_4 = columns(FIVE_STAGES, (10, 50, 100))


def config(method: str, dataset: str, split: str, factor: int, **args: float) -> RunConfig:
    """50 rounds over all stages, 10 participants, 30 local epochs (part B, common)."""
    clients, classes, stages = (int(part) for part in split.strip("[]").split(","))
    local = Local(lr=0.01, momentum=0.0, weight_decay=1e-4, batch_size=128 if dataset == "TinyImageNet" else 32, epochs=30)
    text = f"stages:{clients}:{classes}:{stages}:if{factor}"
    return run_of(method, NAMES[dataset], text, "resnet18", local, 50, 10 / clients, **args)


def proxy(full: RunConfig) -> RunConfig | None:
    """CIFAR-10 with a small convolutional network, 20 rounds of three epochs."""
    if full.data.dataset != "cifar10":
        return None
    federation = Federation(20, full.federation.participation)
    return replace(full, model=Model("simplecnn"), local=replace(full.local, epochs=3.0), federation=federation)


def cells(table: str, metric: str, where: Columns, methods: dict[str, str]) -> tuple[Cell, ...]:
    return tuple(
        Cell(row, f"{data} {split} IF{factor}", config(key, data, split, factor, **SERVER_DATA.get((key, data), {})),
             {"table": table, "dataset": data, "split": split, "imbalance_factor": str(factor), "method": row, "metric": metric})
        for data, split, factor in where for row, key in methods.items()
    )  # fmt: skip


def _ablation(name: str, metric: str, measure: str) -> Item:
    found = tuple(
        Cell(row, f"{data} {split} IF50", config("gldp", data, split, 50, **args),
             {"table": "Table 4", "dataset": data, "split": split, "imbalance_factor": "50", "method": row, "metric": metric})
        for data, split, _ in (TABLE_2[0], TABLE_2[2]) for row, args in ABLATION.items()
    )  # fmt: skip
    note = "the row without both terms is FedRep's, evaluated with the head; see table 2"
    title = f"Without one of the terms, {metric}"
    return Item("gldp", name, title, measure, found, tolerance=5.0, baseline="GLDP full", note=note, proxy=proxy)


ALL = {**METHODS, **BALANCING}
ITEMS = (
    Item(
        "gldp",
        "table1",
        "Local accuracy, one stage",
        "a_loc",
        cells("Table 1", "A_loc", TABLE_1, METHODS),
        tolerance=5.0,
        proxy=proxy,
    ),
    Item(
        "gldp",
        "table2",
        "Global accuracy, five stages",
        "a_glo",
        cells("Table 2", "A_glo", TABLE_2, ALL),
        tolerance=5.0,
        proxy=proxy,
    ),
    Item(
        "gldp",
        "table3",
        "Local accuracy, five stages",
        "a_loc",
        cells("Table 3", "A_loc", TABLE_3, METHODS),
        tolerance=5.0,
        proxy=proxy,
    ),
    _ablation("table4-global", "A_glo", "a_glo"),
    _ablation("table4-selected", "A_sel", "a_sel"),
    Item(
        "gldp",
        "fig3",
        "Global accuracy, one stage",
        "a_glo",
        cells("Figure 3", "A_glo", TABLE_1[:12], METHODS),
        proxy=proxy,
    ),
    Item(
        "gldp",
        "fig4",
        "Accuracy on the stages so far",
        "a_sel",
        cells("Figure 4", "A_sel", FIGURE_4, METHODS),
        proxy=proxy,
    ),
)

"""pFedMe and Per-FedAvg in Tables I and II at rates under which they train.

At the defaults, which are those of the methods' own papers, their global models stay near chance with 150
rounds of five epochs on Fashion-MNIST. The rates of MAP's released code are larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raffed.experiments.papers.map.settings import METHODS, METRICS, config, proxy
from raffed.experiments.reproduction.catalogue import Argument
from raffed.experiments.reproduction.items import Cell, Item

TRAINED: Mapping[str, Mapping[str, Argument]] = {
    "pFedMe": {"preset": "authors", "lam": 0.1, "outer_lr": 0.9, "personal_lr": 0.03},
    "PerFedAvg": {"preset": "authors", "inner_lr": 0.03, "outer_lr": 0.01},
}
TABLES = {"aggregation": ("I", "accuracy_last"), "personalization": ("II", "personal_last")}


def _cells() -> Iterator[Cell]:
    for net in ("MLPNet", "LeNet"):
        for score, (table, measure) in TABLES.items():
            for row, args in TRAINED.items():
                printed = {"table": table, "dataset": "FaMnist", "network": net, "method": row}
                run = config(METHODS[row], "FaMnist", net, **args)
                metric = METRICS[measure]
                yield Cell(row, f"FaMnist {net} {score}", run, {**printed, "metric": metric}, measure)


ITEM = Item(
    "map",
    "rates",
    "Ours: pFedMe and Per-FedAvg at rates under which they train",
    "accuracy_last",
    tuple(_cells()),
    margin=0.3,  # half of the largest printed difference to pFedMe
    baseline="pFedMe",
    proxy=proxy,
    note="the released code's forms and rates, with which both train; Tables I and II have the defaults",
)

__all__ = ["ITEM"]

"""T9: MOON on CIFAR-10, printed by Flower's baseline, whose author wrote MOON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from raffed import Claim, Data, Model
from raffed.tables.items import Cell, Published

from .common import SGD, Printed, TableRow, base, cells, item

COLUMN = "Dir 0.5"
ROWS = (
    TableRow("MOON (μ = 5)", "moon", {"mu": 5.0}, printed="MOON"),
    TableRow("MOON (μ = 1)", "moon", {"mu": 1.0}, printed="MOON"),
    TableRow("FedProx", "fedprox", {"mu": 0.001}),
)


def _cells() -> Iterator[Cell]:
    data = Data("cifar10", "capped-dirichlet:10:0.5:10:pfllib:0:0", transform="fedmr", local_test=0.0)
    run = base(data, Model("simplecnn", {"projection": 256}), replace(SGD, drop_last=True), 100)
    for row in ROWS:
        printed = [Printed("flower-moon", "README", "CIFAR-10 Dir0.5")]
        yield from cells(row, COLUMN, run, printed)


ITEM = item(
    "moon-cifar10",
    "Flower's MOON, CIFAR-10",
    "accuracy_last",
    tuple(_cells()),
    margin=1.0,  # no deviation is printed; half of the printed gain is 1.09
    baseline="FedProx",
    note="MOON is printed once, so both rows of MOON are held to that number",
    claims=tuple(
        Claim.above(f"{row.name} is above FedProx (printed +2.2)", row.name, "FedProx", COLUMN)
        for row in ROWS[:2]
    ),
    published=Published(
        "Flower's baseline moon, README (adap/flower fdef7af)",
        "accuracy after round 100 of one run; the printed curves are flat within 0.5 from round 60 on",
        "CIFAR-10 and one CPU core",
        "776,000 steps a run; about 2 hours on one core for FedProx, and about 4 for MOON, which has three "
        "forward passes",
        (
            "The text says μ = 1 and the configuration says μ = 5; both are run.",
            "One seed is printed, without a deviation.",
            "The published means are weighted by numbers of batches; raffed weights by samples.",
        ),
    ),
)

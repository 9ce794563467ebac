"""T11: Flower's FedProx on MNIST with stragglers, of which only a figure is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from raffed import Claim, Data, Faults, Local, Model, RunConfig
from raffed.tables.items import Cell, Published

from .common import Printed, TableRow, base, cells, item
from .lr_mnist import SPLIT

NORMALISED = {"mean": [0.1307], "std": [0.3081]}
SHARES = {"0 %": 0.0, "50 %": 0.5, "90 %": 0.9}  # of stragglers
ROWS = (
    TableRow("FedAvg (stragglers dropped)", "fedavg", printed="FedAvg drop"),
    TableRow("FedProx (μ = 0)", "fedprox", {"mu": 0.0}, printed="FedProx mu=0"),
    TableRow("FedProx (μ = 2)", "fedprox", {"mu": 2.0}, printed="FedProx mu=2"),
)
LOCAL = Local(lr=0.03, momentum=0.0, weight_decay=1e-3, batch_size=10, epochs=10)


def _faults(row: TableRow, share: float) -> Faults:
    return Faults(drop=share) if row.method == "fedavg" else Faults(straggle=share, straggle_share=0.5)


def _column(run: RunConfig, row: TableRow, share: float) -> RunConfig:
    return replace(run, faults=_faults(row, share)) if share else run


def _cells() -> Iterator[Cell]:
    data = Data("mnist", SPLIT, transform="plain", local_test=0.1, transform_args=NORMALISED)
    run = base(data, Model("linear"), LOCAL, 100, 0.01)
    for column, share in SHARES.items():
        name = f"MNIST 1000 clients power law, {column.replace(' ', '')} stragglers"
        for row in ROWS:
            printed = [Printed("flower-fedprox", "FedProx_mnist.png", name)]
            yield from cells(row, column, _column(run, row, share), printed, False)


TOP, PLAIN, DROPPED = "FedProx (μ = 2)", "FedProx (μ = 0)", "FedAvg (stragglers dropped)"
ITEM = item(
    "fedprox-mnist",
    "Flower's FedProx with stragglers, MNIST",
    "accuracy_last",
    tuple(_cells()),
    baseline=DROPPED,
    note=(
        "the figure swings by 5 points from round to round, so its levels are no targets; a straggler makes "
        "half of its 10 epochs here, and 1 to 9 in print; the server weighs clients by their images here, "
        "and by their batches of 10 in print"
    ),
    claims=(
        Claim.above("μ = 2 is above μ = 0 with 90 % stragglers", TOP, PLAIN, "90 %"),
        Claim.above("μ = 2 is above FedAvg without its stragglers at 90 %", TOP, DROPPED, "90 %"),
    ),
    published=Published(
        "Flower's baseline fedprox, FedProx_mnist.png (adap/flower fdef7af)",
        "curves of 100 rounds, mean of 5 repeats, read off the figure at round 100",
        "MNIST and one CPU core",
        "at most about 57,600 steps a run, a few minutes on one core",
        ("Only a figure is printed, and no number.",),
        may_differ=("faults.drop", "faults.straggle", "faults.straggle_share"),
    ),
)

"""T13: logistic regression on MNIST with 1,000 clients, printed by FLUTE and by FedML."""

from __future__ import annotations

from collections.abc import Iterator

from raffed import Data, Local, Model
from raffed.tables.items import Cell, Published

from .common import Printed, base, item

COLUMN = "1,000 clients"
SPLIT = "power-law:1000:2:2:5:flower:42"
LOCAL = Local(lr=0.03, momentum=0.0, weight_decay=0.0, batch_size=10, epochs=1)
PRINTED = Printed("flute", "README", "MNIST 1000 clients power law")
ROWS = {  # row → weight decay, and the programs that print it
    "FedAvg": (0.0, ("FLUTE CPU", "Flower CPU", "FLUTE NCCL")),
    "FedAvg (weight decay 0.001)": (1e-3, ("FedML MPI",)),
}


def _cells() -> Iterator[Cell]:
    data = Data("mnist", SPLIT, transform="plain", local_test=0.1)
    run = base(data, Model("linear", {"sigmoid": True}), LOCAL, 100, 0.01)
    for row, (decay, programs) in ROWS.items():
        first, *others = (PRINTED.of(program) for program in programs)
        config = run.changed({"local.weight_decay": decay}) if decay else run
        yield Cell(row, COLUMN, config, first, witnesses=tuple(others))


ITEM = item(
    "lr-mnist",
    "FLUTE's and FedML's logistic regression, MNIST",
    "accuracy_last",
    tuple(_cells()),
    margin=0.5,  # no deviation is printed; half of the largest printed difference between the rows, 1
    note=(
        "FedML's own division of MNIST is not to be had; that of Flower's fedprox, with the same law, stands "
        "for it, so the level is not exactly theirs; of each client's images nine tenths are trained with"
    ),
    published=Published(
        "FLUTE, README (microsoft/msrflute 8bfe085), and FedML's page of benchmarks",
        "accuracy after 100 rounds, one run",
        "MNIST and one CPU core",
        "about 5,800 steps a run, a few minutes on one core",
        (
            "The table is about throughput: its CPU times are 3:20 (FLUTE) and 30:14 (Flower 1.0), and its "
            "accuracies are rounded to whole numbers.",
            "FedML's own page says only that the accuracy is above 75.",
            "The script behind FedML's division (litian96/FedProx b00d206, generate_niid.py) gives every "
            "pixel mean 0 and deviation 1; the images here have values from 0 to 1. That was not run.",
        ),
        lacks=("FedML's MNIST.zip with the power-law division of LEAF",),
        may_differ=("local.weight_decay",),
    ),
)

"""T1: the MNIST columns of FedVLS's Table 1, the only published table with both FedMR and FedRS.

The printed numbers are accuracies on the training images, because the released code swaps two loaders. Every
method has two rows: as printed, on the training images, and on the images that were held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from raffed import Claim, Data, Model
from raffed.tables.items import Cell, Item, Published

from .common import CHECKER, SGD, Printed, base, cells
from .fedvls import ABSENT, DEFECTS, MAY_DIFFER, ROWS, SOURCE, headline

BETAS = ("0.5", "0.1", "0.05")
HELD_OUT = " (held out)"
DEEPER = {"projection": 256, "projection_hidden": 100}
LOCAL = replace(SGD, epochs=5, drop_last=True, keep_optimizer=True)


def _cells() -> Iterator[Cell]:
    for beta in BETAS:
        split = f"capped-dirichlet:10:{beta}:256:pfllib:0.25:1"
        data = Data("mnist", split, pool="joined", transform="map-authors", local_test=0.0)
        run = base(data, Model("mlp", {"hidden": [200, 200]}), LOCAL, 50, measures="training")
        printed = [Printed("fedvls", "1", f"MNIST Dir{beta}")]
        for row in ROWS:
            one = row._replace(model=DEEPER) if row.method == "moon" else row
            held_out = one._replace(name=row.name + HELD_OUT, printed="-", measure="accuracy_best")
            yield from cells(one, f"Dir {beta}", run, printed)
            again = cells(held_out, f"Dir {beta}", run, printed)
            yield from (replace(cell, chosen_as=row.name) for cell in again)


ALL, MILDER = ("Dir 0.5", "Dir 0.1", "Dir 0.05"), ("Dir 0.5", "Dir 0.1")
ABOVE = {"FedVLS": ALL, "FedSAM": ALL, "FedLMD": ALL, "MOON": MILDER}  # where they are printed above FedAvg
CLAIMS = (
    *headline(ABOVE),
    *(
        Claim.near(
            f"FedRS is within 0.2 points of FedAvg in Dir {beta}", "FedRS", "FedAvg", f"Dir {beta}", 0.2
        )
        for beta in BETAS
    ),
    Claim(
        "FedAvg falls by more than 2 points from Dir 0.5 to Dir 0.05 (printed: 4.2)",
        ((1.0, "FedAvg", "Dir 0.5"), (-1.0, "FedAvg", "Dir 0.05")),
        minus=2.0,
    ),
    Claim.above("FedLC is below FedAvg in Dir 0.05 (printed −9.2)", "FedAvg", "FedLC", "Dir 0.05"),
    *(
        Claim(
            f"FedAvg is lower on held-out images than on those of training in Dir {beta}",
            ((1.0, "FedAvg", f"Dir {beta}"), (-1.0, f"FedAvg{HELD_OUT}", f"Dir {beta}")),
        )
        for beta in BETAS
    ),
)
ITEM = Item(
    CHECKER,
    "fedvls-mnist",
    "FedVLS's Table 1, MNIST",
    "training_best",
    tuple(_cells()),
    margin=0.32,  # √(mean s²) of the 33 printed deviations; half of the largest gain (FedVLS) is 0.395
    note=(
        "the verdict is made with the accuracy on the pooled training images, which is what was printed; the "
        "rows with (held out) are the same runs on the 17,500 images that were kept apart"
    ),
    claims=CLAIMS,
    published=Published(
        SOURCE,
        "best round of 50, mean ± deviation of 3 runs on one partition (seed 1)",
        "MNIST and one CPU core",
        "203,500 steps a run, 6 to 20 minutes on one core",
        (
            "The MNIST columns are training accuracy: `generate_mnist` returns (clients, test, training) and "
            "`main.py` unpacks it as (clients, training, test). Driven as it is, the released code gives "
            "FedAvg 96.64 in Dir 0.1 where 96.69 is printed, and 95.76 on the held-out images. In Dir 0.5 it "
            "is 98.95 (98.96 printed) and 97.49. In Dir 0.05 it is 95.33 and 94.50 (94.77 ± 0.44 printed), "
            "which decides nothing.",
            "FedMR is not claimed above FedAvg: the printed gains, −0.01, +0.04 and +0.57, are within the "
            "noise.",
            *DEFECTS,
        ),
        ABSENT,
        may_differ=MAY_DIFFER,
        repeats={"fedvls": 3},
    ),
)

"""FedVLS's tables (Guo et al., AAAI 2025), with the strengths of its Table 10 where it has them.

T1, MNIST, is the only published table with both FedMR and FedRS. Its printed numbers are accuracies on the
training images, because the released code swaps two loaders. Every method has two rows there: as printed, on
the training images, and on the images that were held out. T16, CIFAR-10 with MobileNetV2, needs a GPU.

Its code keeps one optimiser a client for all rounds. FedVLS itself is the exception: it starts anew, and
without weight decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from raffed import Claim, Data, Model
from raffed.config.validation import Value
from raffed.tables.items import Cell, Published

from .common import SGD, Printed, TableRow, base, cells, item, mus

PROJECTION: Mapping[str, Value] = {"projection": 256}
RESET: Mapping[str, Value] = {"keep_optimizer": False}
ROWS = (
    TableRow("FedAvg", "fedavg"),
    TableRow("FedProx", "fedprox", {"mu": 0.01}),
    TableRow("MOON", "moon", {"mu": 0.01, "tau": 0.5}, model=PROJECTION),
    TableRow("FedRS", "fedrs", {"alpha": 0.7}),
    TableRow("FedMR", "fedmr", {"mu2": 0.0}, settings=mus((1e-5, 1e-3, 0.01), "mu1")),
    TableRow("FedEXP", "fedexp", {"epsilon": 0.01, "score": "last"}),
    TableRow("FedLC", "fedlc", {"tau": 0.5}),
    TableRow("FedSAM", "fedsam", {"rho": 0.1}, RESET),
    TableRow("FedNTD", "fedntd", {"beta": 0.1, "teacher": "train"}),
    TableRow("FedLMD", "fedlmd", {"beta": 0.1, "teacher": "train"}),
    TableRow(
        "FedVLS",
        "fedvls",
        {"lam": 0.1, "suppress_form": "code", "teacher": "train"},
        {**RESET, "weight_decay": 0.0},
    ),
)
ABSENT = {
    "FedConcat": "raffed has no such method: its network is several networks side by side, of which only the "
    "last layer is trained together",
    "FedGF": "raffed has no such method: it mixes local and global perturbations of sharpness-aware training",
}
SOURCE = (
    "Guo et al., AAAI 2025, Tables 1 and 2, Table 10 of the technical appendix, and the code "
    "(krumpguo/FedVLS 7d8163f)"
)
MAY_DIFFER = (
    "local.keep_optimizer",
    "local.weight_decay",
    "model.args.projection",
    "model.args.projection_hidden",
)
DEFECTS = (
    "FedMR's coefficient cannot be the printed 4: with it 196 to 200 of 200 features are dead after one "
    "epoch. 1e-5 (FedMR's README), 1e-3 (this code's default) and 0.01 are run, and the best is shown.",
    "As released, the servers of FedAvg, FedProx, FedRS, FedEXP and FedSAM ask for a test set that is never "
    "set, so the released files cannot have made the table.",
    "Where ± 0.00 is printed, the three runs were the same run.",
    "The printed FedLC may be PriorCE, since its row equals that of the ablation's calibrated loss; the "
    "released FedSAM optimises FedVLS's loss. Both rows are uncertain targets.",
    "FedProx has 51 rounds in print and 50 here. The temperatures of FedNTD and FedLMD are not printed and "
    "are 1 here; λ of FedVLS on this data set is the one that the paper states for MNIST and CIFAR-10, 0.1.",
)


def headline(above: Mapping[str, Iterable[str]]) -> tuple[Claim, ...]:
    """Return the table's own headline: that rows are above FedAvg in the columns where it prints so.

    Args:
        above: Row → columns.
    """
    return tuple(
        Claim.above(f"{row} is above FedAvg in {column}", row, "FedAvg", column)
        for row, columns in above.items()
        for column in columns
    )


# MNIST

BETAS = ("0.5", "0.1", "0.05")
HELD_OUT = " (held out)"
DEEPER = {"projection": 256, "projection_hidden": 100}
MNIST_LOCAL = replace(SGD, epochs=5, drop_last=True, keep_optimizer=True)


def _mnist_cells() -> Iterator[Cell]:
    for beta in BETAS:
        split = f"capped-dirichlet:10:{beta}:256:pfllib:0.25:1"
        data = Data("mnist", split, pool="joined", transform="map-authors", local_test=0.0)
        run = base(data, Model("mlp", {"hidden": [200, 200]}), MNIST_LOCAL, 50, measures="training")
        printed = [Printed("fedvls", "1", f"MNIST Dir{beta}")]
        for row in ROWS:
            adapted = row._replace(model=DEEPER) if row.method == "moon" else row
            held_out = adapted._replace(name=row.name + HELD_OUT, printed="-", measure="accuracy_best")
            yield from cells(adapted, f"Dir {beta}", run, printed)
            again = cells(held_out, f"Dir {beta}", run, printed)
            yield from (replace(cell, chosen_as=row.name) for cell in again)


ALL, MILDER = ("Dir 0.5", "Dir 0.1", "Dir 0.05"), ("Dir 0.5", "Dir 0.1")
# Where they are printed above FedAvg
MNIST_ABOVE = {"FedVLS": ALL, "FedSAM": ALL, "FedLMD": ALL, "MOON": MILDER}
MNIST_CLAIMS = (
    *headline(MNIST_ABOVE),
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
MNIST = item(
    "fedvls-mnist",
    "FedVLS's Table 1, MNIST",
    "training_best",
    tuple(_mnist_cells()),
    margin=0.32,  # √(mean s²) of the 33 printed deviations; half of the largest gain (FedVLS) is 0.395
    note=(
        "the verdict is made with the accuracy on the pooled training images, which is what was printed; the "
        "rows with (held out) are the same runs on the 17,500 images that were kept apart"
    ),
    claims=MNIST_CLAIMS,
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


# CIFAR-10

CIFAR10_COLUMNS = {
    "Dir 0.5": ("capped-dirichlet:10:0.5:10:pfllib:0:1", Printed("fedvls", "1", "CIFAR-10 Dir0.5")),
    "Dir 0.1": ("capped-dirichlet:10:0.1:10:pfllib:0:1", Printed("fedvls", "1", "CIFAR-10 Dir0.1")),
    "Dir 0.05": ("capped-dirichlet:10:0.05:10:pfllib:0:1", Printed("fedvls", "1", "CIFAR-10 Dir0.05")),
    "s = 2": ("class-groups:10:2:fedvls:1", Printed("fedvls", "2", "CIFAR-10 s=2")),
}
PREPARED: Mapping[str, Value] = {  # the mean and the deviation of MOON's code, and padding with zeros
    "mean": [0.4914, 0.4824, 0.4467],
    "std": [0.2471, 0.2435, 0.2616],
    "crop_padding": 4,
    "flip": True,
    "autoaugment": True,
}
CIFAR10_ABOVE = {  # where rows are printed above FedAvg
    "FedVLS": tuple(CIFAR10_COLUMNS),
    "FedLMD": tuple(CIFAR10_COLUMNS),
    "FedSAM": ("Dir 0.5", "Dir 0.05"),
    "MOON": ("Dir 0.5", "Dir 0.1"),
}
WIDER: Mapping[str, Value] = {"projection": 256, "projection_hidden": 640}  # MOON's network in FedVLS's code


def _cifar10_cells() -> Iterator[Cell]:
    for column, (split, printed) in CIFAR10_COLUMNS.items():
        data = Data("cifar10", split, transform="plain", local_test=0.0, transform_args=PREPARED)
        run = base(data, Model("mobilenet_v2"), SGD, 100).changed({"local.keep_optimizer": True})
        for row in ROWS:
            adapted = row._replace(model=WIDER) if row.method == "moon" else row
            yield from cells(adapted, column, run, [printed])


CIFAR10 = item(
    "fedvls-cifar10",
    "FedVLS's Tables 1 and 2, CIFAR-10",
    "accuracy_best",
    tuple(_cifar10_cells()),
    margin=0.67,  # √(mean s²) of the 44 printed deviations is 0.679; half of the largest gain is 11.9
    note="five pairs of clients share the same two classes in s = 2",
    claims=(
        *headline(CIFAR10_ABOVE),
        Claim.above("FedMR is above FedAvg in s = 2 (printed +1.9)", "FedMR", "FedAvg", "s = 2"),
        Claim.above("FedRS is below FedAvg in s = 2 (printed −2.4)", "FedAvg", "FedRS", "s = 2"),
    ),
    published=Published(
        SOURCE,
        "best round of 100, mean ± deviation of 3 runs on one partition (seed 1)",
        "CIFAR-10 and a GPU",
        "785,000 steps a run, an estimated 6 to 12 hours on one GPU, not measured",
        (
            "Table 16 prints 64.28 for FedRS after 80 rounds (Dir 0.05), above Table 1's best of 100 rounds, "
            "63.17; the same holds for FedProx, 82.88 and 82.65.",
            *DEFECTS,
        ),
        ABSENT,
        may_differ=MAY_DIFFER,
        repeats={"fedvls": 3},
    ),
)

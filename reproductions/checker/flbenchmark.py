"""T15: FLBenchmarkUI's family of FedOpt and MOON, on the settings of T2 to T4. It is a witness, never a "
"target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raffed.config.validation import Value
from raffed.tables.items import Cell, Published

from .common import Printed, TableRow, cells, item
from .niid_bench import FLBENCH, SPLITS, column_base
from .niid_cifar10 import AUGMENTED

DATA: Mapping[str, tuple[str, Mapping[str, Value]]] = {
    "MNIST": ("mnist", {}),
    "FMNIST": ("fashion-mnist", {}),
    "CIFAR10": ("cifar10", AUGMENTED),
}
ROWS = (
    TableRow("FedAdagrad", "fedadagrad", {"server_lr": 0.1, "tau": 0.2}),
    TableRow("FedYogi", "fedyogi"),
    TableRow("FedAdam", "fedadam"),
    TableRow("MOON", "moon"),
)


def _cells() -> Iterator[Cell]:
    for name, (dataset, transform) in DATA.items():
        for column, split in SPLITS.items():
            run = column_base(dataset, split, transform)
            printed = [
                Printed("flbenchmarkui", "index.html", f"{name} {column.replace('Dir 0.5', 'Dir0.5')}")
            ]
            for row in ROWS:
                yield from cells(row, f"{name} {column}", run, printed, False)


ITEM = item(
    "flbenchmark",
    "FLBenchmarkUI's FedOpt family and MOON",
    "accuracy_best",
    tuple(_cells()),
    baseline="FedYogi",
    note="a second witness without a protocol: no number is a target",
    published=Published(
        FLBENCH,
        "not said: neither rounds nor epochs nor seeds",
        "MNIST, Fashion-MNIST, CIFAR-10 and one CPU core",
        "394,000 to 471,500 steps a run, about 60 to 75 minutes on one core",
        (
            "Cells are copied: FedAvg and FedProx of CIFAR-10 #C=1 equal those of CINIC-10, and FedAdagrad "
            "of SVHN and CINIC-10 equals FedAdam.",
            "Its SCAFFOLD alone clips gradients at 1.",
            "The constants of FedYogi, FedAdam and MOON are not printed; raffed's defaults are run.",
        ),
        {
            "FedBN": "without BatchNorm layers FedBN is FedAvg, and SimpleCNN has none",
            "FedAvg, FedProx, FedNova": "they are witnesses in niid-mnist, niid-fmnist and niid-cifar10",
            "SCAFFOLD": "its gradients are clipped at 1, and those of the others are not",
            "SVHN, CINIC-10, Adult, FCUBE and Fed-ISIC columns": "their protocol is not said either, and "
            "the columns of three data sets suffice for a witness",
        },
    ),
)

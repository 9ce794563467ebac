"""FedMR's tables and figure 4 as runs: what docs/papers/fedmr.md §E1 to §E4 says, written out here by
hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from raffed.tables.catalogue import find_item
from raffed.tables.items import Cell

Place = tuple[str, str]
WHERE = {  # §E1: data set → name here, network
    "FMNIST": ("fashion-mnist", "resnet18"),
    "SVHN": ("svhn", "resnet18"),
    "CIFAR10": ("cifar10", "resnet18"),
    "CIFAR100": ("cifar100", "wrn28"),
    "ISIC2019": ("isic2019", "efficientnet_b0"),
}
SPLIT = {
    "IID": "iid:10",
    "Real": "natural",
    "balanced": "natural",
}  # §E2; others are typed as they are printed
TENS = [
    f"{name} {split}"
    for name in ("FMNIST", "SVHN", "CIFAR10")
    for split in ("P5C2", "P10C2", "P10C3", "P10C5", "IID")
]
HUNDREDS = [f"CIFAR100 {split}" for split in ("P10C10", "P10C20", "P10C30", "P10C50", "IID")]
MORE = [f"CIFAR10 {split}" for split in ("P10C3", "P50C3", "P100C3")]
MORE += [f"CIFAR100 {split}" for split in ("P10C10", "P50C10", "P100C10")]
SEVEN: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name.lower(), {})
    for name in ("FedAvg", "FedProx", "FedProc", "FedNova", "MOON", "FedDyn", "FedDC")
}
EIGHT = {**SEVEN, "FedMR": ("fedmr", {})}
FIVE = ("FedProx", "FedNova", "MOON", "FedDyn", "FedDC")
INTRA, INTER = {"mu2": 0.0}, {"mu1": 0.0}  # one of the two losses alone
TABLES: dict[str, tuple[dict[str, tuple[str, dict[str, Any]]], list[str]]] = {  # rows, columns
    "table1": (EIGHT, [*TENS, *HUNDREDS]),
    "table2": (EIGHT, [*MORE, "ISIC2019 Real", "ISIC2019 balanced"]),
    "table4": (EIGHT, MORE[3:]),
    "table5": (
        {
            "FedAvg": ("fedavg", {}),
            "FedMR(proto_share=50%)": ("fedmr", {"share": 0.5}),
            "FedMR(proto_share=80%)": ("fedmr", {"share": 0.8}),
            "FedMR(proto_share=100%)": ("fedmr", {}),
        },
        MORE,
    ),
    "table6": (
        {
            "FedMR(inter=off,intra=off)": ("fedmr", {"mu1": 0.0, "mu2": 0.0}),
            "FedMR(inter=on,intra=off)": ("fedmr", INTER),
            "FedMR(inter=off,intra=on)": ("fedmr", INTRA),
            "FedMR(inter=on,intra=on)": ("fedmr", {}),
        },
        [*TENS, *HUNDREDS],
    ),
    "table7": (
        {**SEVEN, "FedMR(intra)": ("fedmr", INTRA), "FedMR(inter+intra)": ("fedmr", {})},
        TENS[10:],
    ),
    # Docs/papers/baselines.md, Baselines with prototypes: with prototypes, the cross-entropy is replaced as
    # in FedProc
    "table8": (
        {
            **{f"{name}(without_prototypes)": (name.lower(), {}) for name in FIVE},
            "FedMR(without_prototypes)": ("fedmr", INTRA),
            "FedMR(with_prototypes)": ("fedmr", {}),
            **{f"{name}(with_prototypes)": (name.lower(), {"prototypes": "fedproc"}) for name in FIVE},
        },
        TENS[:5],
    ),
    "fig4": (
        {**EIGHT, "Lite-10": ("fedmr", {"lite": 10}), "Lite-50": ("fedmr", {"lite": 50})},
        [*TENS, *HUNDREDS, "ISIC2019 Real"],
    ),
}
# docs/papers/fedmr.md §9 A10: headline = best over rounds
MEASURE = {"table4": "rounds_to_baseline", "table7": "eigenvalue_variance"}


def cells(name: str) -> dict[Place, Cell]:
    """(row, column) → the cell, each once."""
    found = {(cell.row, cell.column): cell for cell in find_item(f"fedmr/{name}").cells}
    assert len(found) == len(find_item(f"fedmr/{name}").cells)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_the_method_data_split_and_network_that_the_sheet_names(name: str) -> None:
    rows, columns = TABLES[name]
    wanted = {}
    for column in columns:
        dataset, split = column.split()
        for row, (method, args) in rows.items():
            wanted[row, column] = (method, args, *WHERE[dataset], SPLIT.get(split, split.lower()))
    found = {
        place: (
            cell.config.method,
            dict(cell.config.args),
            cell.config.data.dataset,
            cell.config.model.name,
            cell.config.data.split,
        )
        for place, cell in cells(name).items()
    }
    assert found == wanted
    assert not any(cell.config.model.args for cell in cells(name).values())


@pytest.mark.parametrize("name", TABLES)
def test_every_item_reads_the_measure_that_the_sheet_names(name: str) -> None:
    """ISIC2019's balanced accuracy beside the plain one (§E1)."""
    item = find_item(f"fedmr/{name}")
    assert item.measure == MEASURE.get(name, "accuracy_best")
    own = {(column, cell.measure) for (_, column), cell in cells(name).items() if cell.measure}
    assert own == ({("ISIC2019 balanced", "balanced_best")} if name == "table2" else set())


def test_the_runs_of_table_7_measure_eigenvalues_and_those_of_figure_4_memory() -> None:
    """Table 7's runs are Table 1's too: one that measures and one that does not would be trained twice."""
    seventh, first = cells("table7"), cells("table1")
    assert [place for place, cell in seventh.items() if not cell.config.federation.asks("spectrum")] == []
    shared = [place for place in seventh if place in first]
    assert len(shared) == 7 * 5
    assert all(seventh[place].config.identity() == first[place].config.identity() for place in shared)
    assert all(cell.config.federation.asks("memory") for cell in cells("fig4").values())

"""Our data: 178 wines of three kinds, with 13 measurements each, from three sites.

The numbers are scikit-learn's wine data set. Who measured which wine is made up: each site mostly
has one kind.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from raffed import Dataset
from sklearn.datasets import load_wine

SITES = np.array(["north", "south", "west"])
KINDS = np.array(["barolo", "grignolino", "barbera"])


def sites(kinds: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the site of each wine: of five wines, three go to the site of their kind."""
    place = np.arange(len(kinds)) % 5
    return SITES[np.where(place < 3, kinds, (kinds + place) % 3)]


def wine() -> Dataset:
    """Return the wines as a data set; raffed calls this function in every process that needs it."""
    found = load_wine()
    x = ((found.data - found.data.mean(0)) / found.data.std(0)).astype(np.float32)
    return Dataset.from_arrays(x, KINDS[found.target], clients=sites(found.target), test=0.25)


def write_table(path: Path) -> None:
    """Write the same wines as a table, as one might get them from a laboratory."""
    found = load_wine()
    names = [name.replace("/", "_") for name in found.feature_names]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*names, "kind", "site"])
        for row, kind, site in zip(found.data, found.target, sites(found.target), strict=True):
            table.writerow([*row, KINDS[kind], site])


if __name__ == "__main__":
    write_table(Path(sys.argv[1]))

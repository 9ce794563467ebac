"""Real data where there is some; a small made-up pool everywhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from raffed.data.dataset import Dataset
from raffed.data.datasets import load_dataset

_MARKS = {
    "cifar10": "cifar-10-batches-py/data_batch_1",
    "fashion-mnist": "FashionMNIST/raw/train-images-idx3-ubyte.gz",
    "femnist": "FEMNIST",
    "mnist": "MNIST/raw/train-images-idx3-ubyte.gz",
}


def _root_with(name: str) -> Path:
    places = [
        os.environ.get("RAFFED_DATA", ""),
        "/tmp/data",
        str(Path(__file__).parents[3] / "shared" / "data"),
    ]
    for place in places:
        if place and (Path(place) / _MARKS[name]).exists():
            return Path(place)
    pytest.skip(f"no {name} in RAFFED_DATA, /tmp/data or ../shared/data")


@lru_cache
def _loaded(name: str) -> Dataset:
    return load_dataset(name, _root_with(name))


@pytest.fixture(scope="session")
def real() -> Callable[[str], Dataset]:
    """real('femnist') is the real data set, loaded once; skips where it is not at hand."""
    return _loaded


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="session")
def cifar_labels() -> np.ndarray:
    """10 classes of 5,000 each, as in CIFAR-10."""
    return np.arange(50_000, dtype=np.int64) % 10

"""Write a divided data set for another tool: PFLlib's folders, Parquet for flwr-datasets, or a csv table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.data.importers.pfllib import write_pfllib
from raffed.errors import UnknownNameError, UsageError, writing

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]
EXPORTS = {"pfllib": "pfllib:DIR", "flwr": "flwr:DIR", "csv": "csv:FILE.csv"}
WIDEST = 4096
_FLWR = """Written by raffed for flwr-datasets. One client is one partition:

from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import NaturalIdPartitioner

clients = NaturalIdPartitioner(partition_by="client")
data = FederatedDataset(dataset={place!r}, partitioners={{"train": clients}})
"""


@dataclass(frozen=True, eq=False)
class DividedData:
    """The samples of every client.

    Attributes:
        train, test: For each client, its samples [n, ...] and labels [n]. Test parts may have 0 rows.
        num_classes: Number of classes.
        split: How the data were divided, in words.
        max_value: The value in uint8 that means 1.0.
    """

    train: Sequence[tuple[Array, IntArray]]
    test: Sequence[tuple[Array, IntArray]]
    num_classes: int
    split: str
    max_value: int = 255

    @staticmethod
    def of(
        pools: dict[str, tuple[Array, IntArray]],
        train: Sequence[IntArray],
        test: Sequence[IntArray],
        test_pool: str,
        num_classes: int,
        split: str,
        max_value: int = 255,
    ) -> DividedData:
        """Take the samples out of the pools "train" and "test" by a partition's lists."""
        x, y = pools["train"]
        x_test, y_test = pools[test_pool]
        return DividedData(
            [(x[rows], y[rows]) for rows in train],
            [(x_test[rows], y_test[rows]) for rows in test],
            num_classes,
            split,
            max_value,
        )


def export(data: DividedData, target: str) -> Path:
    """Write divided data.

    Args:
        data: The samples of every client.
        target: "pfllib:DIR", "flwr:DIR" or "csv:FILE.csv". The folder or file must not exist.

    Returns:
        The folder or file.

    Raises:
        UsageError: The target is of another kind, exists already, or cannot hold these data.
    """
    kind, colon, place = target.partition(":")
    if kind not in EXPORTS:
        raise UnknownNameError("kind of export", kind, EXPORTS)
    if not colon or not place.strip():
        raise UsageError(f"--export {target}: give {EXPORTS[kind]}")
    path = Path(place).expanduser()
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UsageError(f"--export {target}: {path} exists already; choose another place")
    with writing(path, "--export"):
        if kind == "csv":
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_csv(data, path)
        else:
            path.mkdir(parents=True, exist_ok=True)
            if kind == "flwr":
                _write_flwr(data, path)
            else:
                train, test = (
                    [(_plain(x, data.max_value), y) for x, y in part] for part in (data.train, data.test)
                )
                write_pfllib(path, train, test, data.num_classes, data.split)
    return path


def _write_flwr(data: DividedData, folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    for name, parts in (("train", data.train), ("test", data.test)):
        x = np.concatenate([_plain(x, data.max_value) for x, _ in parts])
        y = np.concatenate([y for _, y in parts])
        if len(y):
            clients = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
            columns = {"x": _lists(x), "y": pa.array(y), "client": pa.array(clients)}
            parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    (folder / "README.txt").write_text(_FLWR.format(place=str(folder)), encoding="utf-8")


def _write_csv(data: DividedData, path: Path) -> None:
    width = int(np.prod(data.train[0][0].shape[1:]))
    if width > WIDEST:
        raise UsageError(
            f"a sample has {width} values and a csv table gets at most {WIDEST} columns; "
            f"use pfllib:DIR or flwr:DIR"
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["client", "part", "label", *(f"x{place}" for place in range(width))])
        for part, clients in (("train", data.train), ("test", data.test)):
            for client, (x, y) in enumerate(clients):
                rows = x.reshape(len(x), -1).tolist()
                table.writerows([client, part, int(label), *row] for label, row in zip(y, rows, strict=True))


def _plain(x: Array, max_value: int) -> Array:
    """Return pixels as float32 in [0, 1], as other tools want them, and other samples as they are."""
    return x.astype(np.float32) / np.float32(max_value) if x.dtype == np.uint8 else x


def _lists(x: Array) -> pa.Array:
    """Return samples [N, ...] as nested lists of fixed lengths."""
    import pyarrow as pa

    made = pa.array(x.reshape(-1))
    for side in reversed(x.shape[1:]):
        made = pa.FixedSizeListArray.from_arrays(made, side)
    return made

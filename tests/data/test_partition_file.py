"""The file of a partition: what a stranger puts into it ends in a UsageError or in a possible partition."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raffed.data.partition_file import Partition
from raffed.errors import UsageError


def stored(**changes: Any) -> bytes:
    """A file of two clients with the changes made, its sha256 recomputed where that is possible."""
    arrays = {
        "format": np.int64(1),
        "num_classes": np.int64(10),
        "train_lengths": np.array([2, 1]),
        "train_indices": np.array([5, 1, 2]),
        "test_lengths": np.array([1, 0]),
        "test_indices": np.array([7]),
        "recipe": np.str_("{}"),
    } | changes
    try:
        train = np.split(arrays["train_indices"], np.cumsum(arrays["train_lengths"])[:-1])
        test = np.split(arrays["test_indices"], np.cumsum(arrays["test_lengths"])[:-1])
        digest = Partition(tuple(train), tuple(test), 10).sha256()
    except (TypeError, ValueError, IndexError):
        digest = ""
    buffer = io.BytesIO()
    np.savez(buffer, **({"sha256": np.str_(digest)} | arrays))
    return buffer.getvalue()


def test_the_file_of_a_stranger_is_read_when_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "p.npz").write_bytes(stored(train_indices=np.array([5, 1, 2], dtype=np.uint16)))
    p = Partition.load(tmp_path / "p.npz")
    assert [part.tolist() for part in (*p.train, *p.test)] == [[5, 1], [2], [7], []]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": np.int64(3)}, "partition format 3"),
        ({"format": np.int64(2)}, "lacks the arrays stage_order, test_pool, test_stages, train_stages"),
        ({"format": np.array([1])}, "format is int64 (1,)"),
        ({"num_classes": np.int64(0)}, "num_classes = 0"),
        ({"num_classes": np.float64(10)}, "num_classes is float64"),
        ({"train_indices": np.array([5, 1, 1])}, "listed twice"),
        ({"test_indices": np.array([1])}, "listed twice"),
        ({"train_indices": np.array([5, 1, -2])}, "must not be below 0"),
        ({"train_indices": np.array([5, 1, 10])}, "index 10, but the data has 10"),
        ({"train_indices": np.array([5, 1, 2**64 - 1], dtype=np.uint64)}, "must not be below 0"),
        ({"train_indices": np.array([5.0, 1, 2])}, "train_indices is float64"),
        ({"train_indices": np.array([[5, 1, 2]])}, "train_indices is int64 (1, 3)"),
        ({"train_lengths": np.array([2, 2])}, "add up to 4, but there are 3"),
        ({"train_lengths": np.array([3, 0])}, "client 1 has nothing to train on"),
        ({"train_lengths": np.array([4, -1])}, "must not be below 0"),
        ({"train_lengths": np.array([2**62, 2**62, 2**62, 2**62, 3])}, "add up to"),
        ({"test_lengths": np.array([1])}, "2 train and 1 test lists"),
        ({"recipe": np.str_("{")}, "recipe is not json"),
        ({"recipe": np.str_("[1]")}, "recipe is not an object"),
        ({"recipe": np.str_('{"a": {}}')}, "recipe is not an object"),
        ({"recipe": np.array({}, dtype=object)}, "damaged npz"),
        ({"sha256": np.str_("0" * 64)}, "do not have the stored sha256"),
    ],
)
def test_the_file_of_a_stranger_with_one_fault_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.npz"
    path.write_bytes(stored(**changes))
    with pytest.raises(UsageError) as caught:
        Partition.load(path, pool_size=10)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_without_clients_is_refused(tmp_path: Path) -> None:
    none = np.zeros(0, dtype=np.int64)
    empty = {"train_lengths": none, "train_indices": none, "test_lengths": none, "test_indices": none}
    (tmp_path / "p.npz").write_bytes(stored(**empty))
    with pytest.raises(UsageError, match="0 train and 0 test lists"):
        Partition.load(tmp_path / "p.npz")


@pytest.mark.parametrize(
    "fields",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000,), }",  # petabytes
        # Neither numpy's parser nor its tokeniser likes it
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,), (((}",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': '''3",
        b"\xff\xfe{'descr'",
    ],
)
def test_an_array_header_that_lies_or_cannot_be_read_is_refused(fields: bytes, tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00v\x00" + fields
    path = tmp_path / "p.npz"
    with zipfile.ZipFile(io.BytesIO(stored())) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            lie = header.ljust(10 + 0x76 - 1) + b"\n" if name == "train_indices.npy" else source.read(name)
            target.writestr(name, lie)
    with pytest.raises(UsageError, match=r"p\.npz"):
        Partition.load(path)

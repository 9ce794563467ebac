"""FEMNIST (Caldas et al. 2018, LEAF): handwritten characters with their writers, 28x28, ink 0 on background
255.

Three layouts are read under ROOT/FEMNIST or ROOT/femnist. All files are checked field by field, as files from
strangers:

  *.npz                            images uint8 [N,28,28], labels [N] in 0..61, writer [N], writer_ids [W]
  *.json or {train,test}/*.json    LEAF's {"users", "num_samples", "user_data": {user: {"x", "y"}}}, x in
                                   [0, 1]
  data/{train,test}/*.json         the same, where LEAF's scripts put it; without data/train, the pool is
                                   data/all_data/*.json

Labels: 0-9 digits, 10-35 upper case, 36-61 lower case. Only a LEAF folder with test/ has test rows. Where
LEAF's scripts made the files, the test rows of a writer are also the local test part of that client
(`natural` split).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from raffed.data.files import ByteArray, IntArray, read_npz
from raffed.data.importers.leaf import User, read_leaf_file
from raffed.errors import DataFileError

NUM_CLASSES = 62
SIDE = 28
LETTER_A = 36  # the label of the lower-case a


@dataclass(frozen=True, eq=False)
class WriterPool:
    """The samples of all writers.

    x is uint8 [N, 1, 28, 28], y is int64 [N], and groups is int64 [N], the index of the writer. x_test and
    y_test may have 0 rows. test_groups is int64: the same writers for the test rows, and -1 for a writer
    without training rows. It is None where the test rows are a test set for all clients.
    """

    x: ByteArray
    y: IntArray
    groups: IntArray
    x_test: ByteArray
    y_test: IntArray
    test_groups: IntArray | None = None


_NO_IMAGES = np.zeros((0, 1, SIDE, SIDE), dtype=np.uint8)
_NO_LABELS = np.zeros(0, dtype=np.int64)


def load_femnist(root: Path) -> WriterPool:
    """Return the writers found under `root`/FEMNIST.

    Raises:
        DataFileError: The layout is missing, ambiguous or damaged.
    """
    folder = next(
        (root / name for name in ("FEMNIST", "femnist") if (root / name).is_dir()), root / "FEMNIST"
    )
    archives = sorted(folder.glob("*.npz"))
    train_files = sorted((folder / "train").glob("*.json")) or sorted(folder.glob("*.json"))
    made = folder / "data"
    by_leaf = sorted((made / "train").glob("*.json")) or sorted((made / "all_data").glob("*.json"))
    if len(archives) + bool(train_files) + bool(by_leaf) > 1:
        raise DataFileError(
            f"{folder} holds several copies of FEMNIST; keep one npz file or the LEAF json files"
        )
    if archives:
        return _from_npz(archives[0])
    if by_leaf:
        return _from_folders(by_leaf, made / "test", whose=True)
    if not train_files:
        raise DataFileError(
            f"no *.npz, *.json, train/*.json or data/train/*.json in {folder} (md5: none is published); make "
            f"FEMNIST with LEAF, "
            "and point RAFFED_DATA or --data-root at the folder that holds FEMNIST/"
        )
    return _from_folders(train_files, folder / "test", whose=False)


def _from_folders(train_files: list[Path], test: Path, whose: bool) -> WriterPool:
    """Read LEAF's files. `whose` says whether the writers of test rows matter.

    They do not if no writer occurs in both parts.
    """
    test_files = sorted(test.glob("*.json")) if train_files[0].parent.name != "all_data" else []
    x, y, groups, writers = _from_leaf(train_files)
    if not test_files:
        return WriterPool(x, y, groups, _NO_IMAGES, _NO_LABELS)
    x_test, y_test, theirs, testers = _from_leaf(test_files)
    known = {writer: number for number, writer in enumerate(writers)}
    numbers = np.array([known.get(writer, -1) for writer in testers], dtype=np.int64)
    own = numbers[theirs] if whose and numbers.max() >= 0 else None
    return WriterPool(x, y, groups, x_test, y_test, own)


def _from_npz(path: Path) -> WriterPool:
    stored = read_npz(path, ("images", "labels", "writer", "writer_ids"), DataFileError)
    images = stored["images"]
    count = len(images) if images.ndim else 0
    if images.dtype != np.uint8 or images.shape != (count, SIDE, SIDE) or count == 0:
        raise DataFileError(
            f"{path}: images are {images.dtype} {images.shape}, but must be uint8 (N, {SIDE}, {SIDE})"
        )
    labels = _column(path, "labels", stored["labels"], count, NUM_CLASSES)
    writers = _column(path, "writer", stored["writer"], count, stored["writer_ids"].size)
    return WriterPool(images[:, None].astype(np.uint8, copy=False), labels, writers, _NO_IMAGES, _NO_LABELS)


def _column(path: Path, name: str, values: npt.NDArray[np.generic], count: int, limit: int) -> IntArray:
    """Return `values` as int64 if they are a column of `count` integers in 0..limit-1."""
    if values.dtype.kind not in "iu" or values.shape != (count,):
        raise DataFileError(
            f"{path}: {name} is {values.dtype} {values.shape}, but must be integers ({count},)"
        )
    if int(values.min()) < 0 or int(values.max()) >= limit:
        raise DataFileError(
            f"{path}: {name} lies in {values.min()}..{values.max()}, but must lie in 0..{limit - 1}"
        )
    return values.astype(np.int64)


def _from_leaf(paths: list[Path]) -> tuple[ByteArray, IntArray, IntArray, list[str]]:
    """Return the samples of all users in the files, and the users' ids.

    Users are sorted by id, so that the group numbers do not depend on the order of the files.
    """
    users: dict[str, tuple[ByteArray, IntArray]] = {}
    for path in paths:
        for user, samples in read_leaf_file(path).items():
            if user in users:
                raise DataFileError(f"{path}: user {user!r} was already in another file")
            users[user] = _leaf_user(path, user, samples)
    names = sorted(user for user, (_, labels) in users.items() if len(labels))
    if not names:
        raise DataFileError(f"{paths[0].parent} holds no samples")
    x = np.concatenate([users[name][0] for name in names])
    y = np.concatenate([users[name][1] for name in names])
    groups = np.repeat(np.arange(len(names), dtype=np.int64), [len(users[name][1]) for name in names])
    return x, y, groups, names


def _leaf_user(path: Path, user: str, data: User) -> tuple[ByteArray, IntArray]:
    """Return a user's images [n, 1, 28, 28] and labels [n].

    In the file, x are lists of 784 values in [0, 1] and y are integers in 0..61.
    """
    where = f"{path}: user {user!r}"
    labels = data["y"]
    if not all(type(label) is int and 0 <= label < NUM_CLASSES for label in labels):
        raise DataFileError(f"{where}: y must be integers in 0..{NUM_CLASSES - 1}")
    if not labels:
        return _NO_IMAGES, _NO_LABELS
    try:
        values = np.array(data["x"])
    except (ValueError, OverflowError) as cause:
        raise DataFileError(f"{where}: x are not lists of {SIDE * SIDE} numbers each") from cause
    if values.dtype.kind not in "fiu" or values.shape != (len(labels), SIDE * SIDE):
        raise DataFileError(
            f"{where}: x is {values.dtype} {values.shape}, but must be {SIDE * SIDE} numbers per image"
        )
    if not bool(np.all((values >= 0) & (values <= 1))):  # the comparison is false for NaN
        raise DataFileError(f"{where}: x must lie in [0, 1]")
    pixels = np.rint(values * 255).astype(np.uint8)
    return pixels.reshape(-1, 1, SIDE, SIDE), np.asarray(labels, dtype=np.int64)

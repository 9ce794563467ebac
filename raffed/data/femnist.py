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

from pathlib import Path

import numpy as np

from raffed.data.dataset import Dataset
from raffed.data.files import ByteArray, IntArray, read_npz
from raffed.data.importers.leaf import User, read_users
from raffed.errors import DataFileError, UsageError

NUM_CLASSES = 62
SIDE = 28
LETTER_A = 36  # the label of the lower-case a
Samples = tuple[ByteArray, IntArray, IntArray, list[str]]  # images, labels, writers, names of the writers


def load_femnist(root: Path) -> Dataset:
    """Return the samples of the writers found under `root`/FEMNIST; the writers are the natural clients.

    The test rows are those of the same writers, and -1 of a writer without training rows. `test_clients` is
    None where the test rows are a test set for all clients.

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


def _from_folders(train_files: list[Path], test: Path, whose: bool) -> Dataset:
    """Read LEAF's files. `whose` says whether the writers of test rows matter.

    They do not if no writer occurs in both parts.
    """
    test_files = sorted(test.glob("*.json")) if train_files[0].parent.name != "all_data" else []
    x, y, groups, writers = _from_leaf(train_files)
    if not test_files:
        return Dataset(x, y, clients=groups, num_classes=NUM_CLASSES)
    x_test, y_test, theirs, testers = _from_leaf(test_files)
    known = {writer: number for number, writer in enumerate(writers)}
    numbers = np.array([known.get(writer, -1) for writer in testers], dtype=np.int64)
    own = numbers[theirs] if whose and numbers.max() >= 0 else None
    return Dataset(x, y, x_test, y_test, groups, own, num_classes=NUM_CLASSES)


def _from_npz(path: Path) -> Dataset:
    stored = read_npz(path, ("images", "labels", "writer", "writer_ids"), DataFileError)
    images = stored["images"]
    if images.dtype != np.uint8 or images.shape != (images.size // SIDE**2, SIDE, SIDE):
        raise DataFileError(
            f"{path}: images are {images.dtype} {images.shape}, but must be uint8 (N, {SIDE}, {SIDE})"
        )
    labels, writers = stored["labels"], stored["writer"]
    try:
        return Dataset(images, labels, clients=writers, name=str(path), num_classes=NUM_CLASSES)
    except UsageError as error:
        raise DataFileError(str(error)) from error


def _from_leaf(paths: list[Path]) -> Samples:
    """Return the samples of all users in the files, and the users' ids.

    Users are sorted by id, so that the group numbers do not depend on the order of the files.
    """
    users = {user: _leaf_user(paths[0].parent, user, data) for user, data in read_users(paths).items()}
    if not users:
        raise DataFileError(f"{paths[0].parent} holds no samples")
    x = np.concatenate([images for images, _ in users.values()])
    y = np.concatenate([labels for _, labels in users.values()])
    groups = np.repeat(np.arange(len(users), dtype=np.int64), [len(labels) for _, labels in users.values()])
    return x, y, groups, list(users)


def _leaf_user(folder: Path, user: str, data: User) -> tuple[ByteArray, IntArray]:
    """Return a user's images [n, 1, 28, 28] and labels [n].

    In the file, x are lists of 784 values in [0, 1] and y are integers in 0..61.
    """
    where = f"{folder}: user {user!r}"
    labels = data["y"]
    if not all(type(label) is int and 0 <= label < NUM_CLASSES for label in labels):
        raise DataFileError(f"{where}: y must be integers in 0..{NUM_CLASSES - 1}")
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

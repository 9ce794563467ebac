"""Load data sets. The files of published ones are checked against their published md5 sums."""

from __future__ import annotations

import importlib.util
import logging
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from raffed.data import files
from raffed.data.catalogue import DATASETS
from raffed.data.dataset import Dataset
from raffed.data.importers.client_folders import User, read_users
from raffed.data.own_data import checked_name, is_own, read_own
from raffed.data.preparation import TRANSFORMS
from raffed.errors import DataFileError, UsageError

Part = tuple[files.InputArray, files.IntArray]
log = logging.getLogger(__name__)


def load_dataset(name: str, root: str | Path | None = None, download: bool = False) -> Dataset:
    """Load a published data set from the data folder, or data of one's own.

    Args:
        name: What may stand after `--dataset`: a key of DATASETS or an alias, in any case; data of one's own,
            such as "csv:table.csv?label=y"; or a reference to a function of yours.
        root: The data folder; by default that of the environment variable RAFFED_DATA. `digits` needs none.
        download: Whether torchvision downloads missing files. Data sets in folders of their own cannot be
            downloaded.

    Returns:
        The training pool and the test set.

    Raises:
        UnknownNameError: No data set has this name.
        DataFileError: A file is missing, is damaged, or is not the published one.
        UsageError: Data of one's own cannot be used.

    Example:
        >>> load_dataset("digits").x.shape
        (1442, 1, 8, 8)
    """
    name = checked_name(name)
    if is_own(name):
        return read_own(name)
    if name == "digits":
        return _load_digits()
    folder = files.data_root(root)
    if DATASETS[name].folder:
        if download:
            raise DataFileError(
                f"{name} cannot be downloaded here; put these files there: {DATASETS[name].origin}"
            )
    elif download:
        download_files(name, folder)
    elif not folder.is_dir():
        raise DataFileError(
            f"the data folder {folder} does not exist; set RAFFED_DATA or --data-root, or give --download"
        )
    return _LOADERS[name](name, folder)


def _published(
    name: str,
    train: Part,
    test: Part,
    clients: files.IntArray | None = None,
    test_clients: files.IntArray | None = None,
) -> Dataset:
    """Return the arrays of a data set of the catalogue with what the catalogue knows about it."""
    info = DATASETS[name]
    return Dataset(
        *train,
        *test,
        clients=clients,
        test_clients=test_clients,
        class_names=info.class_names,
        name=name,
        source=info.origin,
        num_classes=info.num_classes,
        max_value=info.max_value,
        transforms=TRANSFORMS[name],
    )


def _load_digits() -> Dataset:
    """Return scikit-learn's 1,797 images. Every fifth image of each class, in stored order, is a test image.

    This gives 1,442 training and 355 test images. The file is read without importing scikit-learn, because
    that import takes as long as all else before the first round.
    """
    spec = importlib.util.find_spec("sklearn")
    home = Path(spec.origin).parent if spec and spec.origin else Path("sklearn")
    path = home / "datasets" / "data" / "digits.csv.gz"
    if not path.exists():
        raise DataFileError(f"{path} is missing; install scikit-learn again, which brings it")
    rows = np.loadtxt(path, delimiter=",", dtype=np.uint8)  # [1797, 64 pixels and the label]
    images, labels = rows[:, :64].reshape(-1, 1, 8, 8), rows[:, 64].astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    train, test = ~is_test, is_test
    return _published("digits", (images[train], labels[train]), (images[test], labels[test]))


def _load_femnist(name: str, folder: Path) -> Dataset:
    """Return FEMNIST with all 62 classes, or with the lower-case letters a to j, numbered from 0
    (MpFedcon).
    """
    pool = load_femnist(folder)
    if name == "femnist":
        return _published(name, (pool.x, pool.y), (pool.x_test, pool.y_test), pool.clients, pool.test_clients)
    low, test = ((y >= LETTER_A) & (y < LETTER_A + 10) for y in (pool.y, pool.y_test))
    if not low.any():
        raise DataFileError(f"{folder}/FEMNIST holds none of the letters a to j")
    assert pool.clients is not None
    writers, groups = np.unique(pool.clients[low], return_inverse=True)
    labels = [y - LETTER_A for y in (pool.y[low], pool.y_test[test])]
    data = _published(name, (pool.x[low], labels[0]), (pool.x_test[test], labels[1]), groups.astype(np.int64))
    if pool.test_clients is None:
        return data
    owners, number = pool.test_clients[test], np.full(int(pool.clients.max()) + 1, -1, dtype=np.int64)
    number[writers] = np.arange(len(writers))
    return replace(data, test_clients=np.where(owners < 0, -1, number[owners]))


def _of_parts(load: Callable[[str, Path], tuple[Any, ...]]) -> Callable[[str, Path], Dataset]:
    """Return a function that loads a data set of which `load` reads both parts, and perhaps the clients."""
    return lambda name, folder: _published(name, *load(name, folder))


def _load_idx(name: str, folder: Path) -> tuple[Part, Part]:
    """Read MNIST or Fashion-MNIST. torchvision checks only that the raw files exist, so raffed reads them
    itself.
    """
    images, labels, test_images, test_labels = (files.read_idx(folder, file) for file in DATASETS[name].files)
    return (images[:, None], labels.astype(np.int64)), (test_images[:, None], test_labels.astype(np.int64))


def _load_cifar(name: str, folder: Path) -> tuple[Part, Part]:
    """Read CIFAR with torchvision. Its files are pickles, so their md5 sums are checked before they are
    unpickled.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    files.check_published(folder, DATASETS[name].files)
    source = CIFAR10 if name == "cifar10" else CIFAR100

    def part(train: bool) -> Part:
        stored = source(str(folder), train=train)
        images = np.ascontiguousarray(stored.data.transpose(0, 3, 1, 2))
        return images, np.asarray(stored.targets, dtype=np.int64)

    return part(True), part(False)


def _load_svhn(name: str, folder: Path) -> tuple[Part, Part]:
    """Read SVHN's Matlab files. torchvision changes their label 10 to 0."""
    from torchvision.datasets import SVHN

    files.check_published(folder, DATASETS[name].files)

    def part(split: str) -> Part:
        stored = SVHN(str(folder), split=split)
        return np.ascontiguousarray(stored.data), stored.labels.astype(np.int64)

    return part("train"), part("test")


_LOADERS: dict[str, Callable[[str, Path], Dataset]] = {
    "cifar10": _of_parts(_load_cifar),
    "cifar100": _of_parts(_load_cifar),
    "cinic10": _of_parts(files.load_cinic10),
    "fashion-mnist": _of_parts(_load_idx),
    "femnist": _load_femnist,
    "femnist-letters": _load_femnist,
    "isic2019": _of_parts(files.load_isic),
    "mnist": _of_parts(_load_idx),
    "svhn": _of_parts(_load_svhn),
    "tiny-imagenet": _of_parts(files.load_tiny_imagenet),
}


def download_files(name: str, folder: Path) -> None:
    """Let torchvision download and unpack the files that are missing."""
    from torchvision import datasets as vision

    if not all((folder / file.path).exists() for file in DATASETS[name].files):
        log.warning("downloading %s to %s, which may take minutes", name, folder)
    try:
        if name == "svhn":
            for split in ("train", "test"):
                vision.SVHN(str(folder), split=split, download=True)
            return
        source = {
            "cifar10": vision.CIFAR10,
            "cifar100": vision.CIFAR100,
            "fashion-mnist": vision.FashionMNIST,
            "mnist": vision.MNIST,
        }[name]
        source(str(folder), download=True)
    except (OSError, RuntimeError, ValueError, EOFError, zipfile.BadZipFile) as cause:
        wanted = ", ".join(file.path for file in DATASETS[name].files)
        raise DataFileError(
            f"{name} could not be downloaded to {folder} ({cause}); put these files there: {wanted}"
        ) from cause


# FEMNIST (Caldas et al. 2018, LEAF): handwritten characters with their writers, 28x28, ink 0 on background
# 255.
#
# Three layouts are read under ROOT/FEMNIST or ROOT/femnist. All files are checked field by field, as files
# from strangers:
#
#   *.npz                            images uint8 [N,28,28], labels [N] in 0..61, writer [N], writer_ids [W]
#   *.json or {train,test}/*.json    LEAF's {"users", "num_samples", "user_data": {user: {"x", "y"}}}, x in
#                                    [0, 1]
#   data/{train,test}/*.json         the same, where LEAF's scripts put it; without data/train, the pool is
#                                    data/all_data/*.json
#
# Labels: 0-9 digits, 10-35 upper case, 36-61 lower case. Only a LEAF folder with test/ has test rows. Where
# LEAF's scripts made the files, the test rows of a writer are also the local test part of that client
# (`natural` split).


NUM_CLASSES = 62
SIDE = 28
LETTER_A = 36  # the label of the lower-case a
Samples = tuple[
    files.ByteArray, files.IntArray, files.IntArray, list[str]
]  # images, labels, writers, names of the writers


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
    leaf = folder / "data"
    by_leaf = sorted((leaf / "train").glob("*.json")) or sorted((leaf / "all_data").glob("*.json"))
    if len(archives) + bool(train_files) + bool(by_leaf) > 1:
        raise DataFileError(
            f"{folder} holds several copies of FEMNIST; keep one npz file or the LEAF json files"
        )
    if archives:
        return _from_npz(archives[0])
    if by_leaf:
        return _from_folders(by_leaf, leaf / "test", whose=True)
    if not train_files:
        raise DataFileError(
            f"no *.npz, *.json, train/*.json or data/train/*.json in {folder} (md5: none is published); make "
            "FEMNIST with LEAF, and point RAFFED_DATA or --data-root at the folder that holds FEMNIST/"
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
    x_test, y_test, test_groups, testers = _from_leaf(test_files)
    known = {writer: number for number, writer in enumerate(writers)}
    numbers = np.array([known.get(writer, -1) for writer in testers], dtype=np.int64)
    owners = numbers[test_groups] if whose and numbers.max() >= 0 else None
    return Dataset(x, y, x_test, y_test, groups, owners, num_classes=NUM_CLASSES)


def _from_npz(path: Path) -> Dataset:
    stored = files.read_npz(path, ("images", "labels", "writer", "writer_ids"), DataFileError)
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


def _leaf_user(folder: Path, user: str, data: User) -> tuple[files.ByteArray, files.IntArray]:
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

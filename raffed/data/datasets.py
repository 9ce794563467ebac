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

from raffed.data.catalogue import DATASETS
from raffed.data.dataset import Dataset
from raffed.data.femnist import LETTER_A, load_femnist
from raffed.data.files import InputArray, IntArray, check_published, data_root, read_idx
from raffed.data.folders import load_cinic10, load_isic, load_tiny_imagenet
from raffed.data.own_data import checked_name, is_own, read_own
from raffed.errors import DataFileError

Part = tuple[InputArray, IntArray]
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
    folder = data_root(root)
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
    name: str, train: Part, test: Part, clients: IntArray | None = None, test_clients: IntArray | None = None
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
        transforms=info.transforms,
    )


def _load_digits() -> Dataset:
    """Return scikit-learn's 1,797 images. Every fifth image of each class, in stored order, is a test image.

    This gives 1,442 training and 355 test images. The file is read without importing scikit-learn, because
    that import takes as long as all else before the first round.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataFileError(
            "digits is bundled with scikit-learn, which is not installed; pip install scikit-learn"
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.exists():
        raise DataFileError(f"{path} is missing; reinstall scikit-learn, which brings it")
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
    own, test = ((y >= LETTER_A) & (y < LETTER_A + 10) for y in (pool.y, pool.y_test))
    if not own.any():
        raise DataFileError(f"{folder}/FEMNIST holds none of the letters a to j")
    assert pool.clients is not None
    writers, groups = np.unique(pool.clients[own], return_inverse=True)
    labels = [y - LETTER_A for y in (pool.y[own], pool.y_test[test])]
    made = _published(name, (pool.x[own], labels[0]), (pool.x_test[test], labels[1]), groups.astype(np.int64))
    if pool.test_clients is None:
        return made
    theirs, number = pool.test_clients[test], np.full(int(pool.clients.max()) + 1, -1, dtype=np.int64)
    number[writers] = np.arange(len(writers))
    return replace(made, test_clients=np.where(theirs < 0, -1, number[theirs]))


def _of_parts(load: Callable[[str, Path], tuple[Any, ...]]) -> Callable[[str, Path], Dataset]:
    """Return a function that loads a data set of which `load` reads both parts, and perhaps the clients."""
    return lambda name, folder: _published(name, *load(name, folder))


def _load_idx(name: str, folder: Path) -> tuple[Part, Part]:
    """Read MNIST or Fashion-MNIST. torchvision checks only that the raw files exist, so raffed reads them
    itself.
    """
    images, labels, test_images, test_labels = (read_idx(folder, file) for file in DATASETS[name].files)
    return (images[:, None], labels.astype(np.int64)), (test_images[:, None], test_labels.astype(np.int64))


def _load_cifar(name: str, folder: Path) -> tuple[Part, Part]:
    """Read CIFAR with torchvision. Its files are pickles, so their md5 sums are checked before they are
    unpickled.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    check_published(folder, DATASETS[name].files)
    source = CIFAR10 if name == "cifar10" else CIFAR100

    def part(train: bool) -> Part:
        stored = source(str(folder), train=train)
        images = np.ascontiguousarray(stored.data.transpose(0, 3, 1, 2))
        return images, np.asarray(stored.targets, dtype=np.int64)

    return part(True), part(False)


def _load_svhn(name: str, folder: Path) -> tuple[Part, Part]:
    """Read SVHN's Matlab files. torchvision changes their label 10 to 0."""
    from torchvision.datasets import SVHN

    check_published(folder, DATASETS[name].files)

    def part(split: str) -> Part:
        stored = SVHN(str(folder), split=split)
        return np.ascontiguousarray(stored.data), stored.labels.astype(np.int64)

    return part("train"), part("test")


_LOADERS: dict[str, Callable[[str, Path], Dataset]] = {
    "cifar10": _of_parts(_load_cifar),
    "cifar100": _of_parts(_load_cifar),
    "cinic10": _of_parts(load_cinic10),
    "fashion-mnist": _of_parts(_load_idx),
    "femnist": _load_femnist,
    "femnist-letters": _load_femnist,
    "isic2019": _of_parts(load_isic),
    "mnist": _of_parts(_load_idx),
    "svhn": _of_parts(_load_svhn),
    "tiny-imagenet": _of_parts(load_tiny_imagenet),
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

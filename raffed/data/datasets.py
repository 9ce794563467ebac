"""Image-classification data as uint8 arrays. Published files are checked against their published md5 sums."""

from __future__ import annotations

import importlib.util
import logging
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from raffed.data import arrays
from raffed.data.catalogue import ALIASES, DATASETS, DataFile, DatasetInfo, dataset_name
from raffed.data.femnist import LETTER_A, load_femnist
from raffed.data.files import ByteArray, IntArray, check_published, data_root, read_idx
from raffed.data.folders import load_cinic10, load_tiny_imagenet
from raffed.data.isic import load_isic
from raffed.data.randomness import stream
from raffed.errors import DataFileError, UsageError, check_range

__all__ = [
    "ALIASES",
    "DATASETS",
    "DataFile",
    "Dataset",
    "DatasetInfo",
    "dataset_name",
    "fewer",
    "load_dataset",
]

Part = tuple[ByteArray, IntArray]
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training pool and a benchmark test set, as arrays.

    Labels may be given in any integer type, and images with one channel as [N, H, W]. They are converted.

    Attributes:
        name: Name of the data set, used in messages and results.
        x_train: Training images, uint8 [N, channels, H, W], values 0 to `max_value`.
        y_train: Training labels, int64 [N], values 0 to num_classes - 1.
        x_test: Test images, as `x_train`; may have 0 rows.
        y_test: Test labels, as `y_train`; may have 0 rows.
        num_classes: Number of classes C.
        groups: The natural client of every training image, int64 [N]; None if there are no natural clients.
        max_value: The pixel value that means 1.0, from 1 to 255.
        test_groups: The natural client of every test image, int64, -1 for none; None if the test images are
            not divided among clients.

    Raises:
        UsageError: The arrays do not fit together, or have another type or range.

    Example:
        >>> import numpy as np
        >>> images, labels = np.zeros((4, 8, 8), dtype=np.uint8), np.array([0, 1, 0, 1])
        >>> Dataset("mine", images, labels, images, labels, num_classes=2).x_train.shape
        (4, 1, 8, 8)
    """

    name: str
    x_train: ByteArray
    y_train: IntArray
    x_test: ByteArray
    y_test: IntArray
    num_classes: int
    groups: IntArray | None = None
    max_value: int = 255
    test_groups: IntArray | None = None

    def __post_init__(self) -> None:
        check_range(f"{self.name}: num_classes", self.num_classes, 1, 2**31)
        check_range(f"{self.name}: max_value", self.max_value, 1, 255)
        for part in ("train", "test"):
            x = arrays.images(f"{self.name}: x_{part}", getattr(self, f"x_{part}"), self.max_value)
            y = arrays.labels(f"{self.name}: y_{part}", getattr(self, f"y_{part}"), len(x), self.num_classes)
            object.__setattr__(self, f"x_{part}", x)
            object.__setattr__(self, f"y_{part}", y)
        if not len(self.x_train):
            raise UsageError(f"{self.name}: there is no training image")
        if len(self.x_test) and self.x_test.shape[1:] != self.x_train.shape[1:]:
            raise UsageError(
                f"{self.name}: x_test's images are {self.x_test.shape[1:]}, x_train's "
                f"{self.x_train.shape[1:]}"
            )
        if self.groups is not None:
            groups = arrays.labels(f"{self.name}: groups", self.groups, len(self.x_train), 2**62)
            object.__setattr__(self, "groups", groups)
        if self.test_groups is not None and np.shape(self.test_groups) != (len(self.x_test),):
            shape = np.shape(self.test_groups)
            raise UsageError(f"{self.name}: test_groups has shape {shape} for {len(self.x_test)} test images")


def fewer(dataset: Dataset, samples: int, seed: int) -> Dataset:
    """Return the data set with `samples` of its training images, equally many of every class, in their old
    order.

    Args:
        dataset: The data set.
        samples: Number of training images to keep, a multiple of the number of classes; 0 keeps all.
        seed: Decides which images are kept.

    Raises:
        UsageError: A class does not have enough images, or the images belong to natural clients.
    """
    if not samples:
        return dataset
    each, rest = divmod(samples, dataset.num_classes)
    counts = np.bincount(dataset.y_train, minlength=dataset.num_classes)
    if rest or not 0 < each <= counts.min() or dataset.groups is not None:
        most = f"a multiple of {dataset.num_classes} up to {dataset.num_classes * int(counts.min())}"
        wanted = most if dataset.groups is None else "0, its images belong to natural clients"
        raise UsageError(f"data.samples = {samples} for {dataset.name}: wanted {wanted}")
    draws = stream(seed, "samples")
    chosen = [
        draws.permutation(np.flatnonzero(dataset.y_train == label))[:each]
        for label in range(dataset.num_classes)
    ]
    kept = np.sort(np.concatenate(chosen))
    return replace(dataset, x_train=dataset.x_train[kept], y_train=dataset.y_train[kept])


def load_dataset(name: str, root: str | Path | None = None, download: bool = False) -> Dataset:
    """Load a data set from the data folder.

    Args:
        name: A key of DATASETS, or an alias, in any case.
        root: The data folder; by default that of the environment variable RAFFED_DATA. `digits` needs none.
        download: Whether torchvision downloads missing files. Data sets in folders of their own cannot be
            downloaded.

    Returns:
        The training pool and the test set.

    Raises:
        UnknownNameError: No data set has this name.
        DataFileError: A file is missing, is damaged, or is not the published one.

    Example:
        >>> load_dataset("digits").x_train.shape
        (1442, 1, 8, 8)
    """
    name = dataset_name(name)
    if name == "digits":
        return _load_digits()
    folder = data_root(root)
    if DATASETS[name].folder:
        if download:
            raise DataFileError(f"{name} cannot be downloaded here; put there: {DATASETS[name].origin}")
        return _FOLDERS[name](name, folder)
    if download:
        _download(name, folder)
    elif not folder.is_dir():
        raise DataFileError(
            f"the data folder {folder} does not exist; set RAFFED_DATA or --data-root, or --download"
        )
    train, test = _LOADERS[name](name, folder)
    return Dataset(name, *train, *test, num_classes=DATASETS[name].num_classes)


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
    return Dataset(
        "digits", images[train], labels[train], images[test], labels[test], num_classes=10, max_value=16
    )


def _load_femnist(name: str, folder: Path) -> Dataset:
    """Return FEMNIST with all 62 classes, or with the lower-case letters a to j, numbered from 0
    (MpFedcon).
    """
    pool = load_femnist(folder)
    if name == "femnist":
        parts = pool.x, pool.y, pool.x_test, pool.y_test
        return Dataset(name, *parts, num_classes=62, groups=pool.groups, test_groups=pool.test_groups)
    own, test = ((y >= LETTER_A) & (y < LETTER_A + 10) for y in (pool.y, pool.y_test))
    if not own.any():
        raise DataFileError(f"{folder}/FEMNIST holds none of the letters a to j")
    writers, groups = np.unique(pool.groups[own], return_inverse=True)
    labels = [y - LETTER_A for y in (pool.y[own], pool.y_test[test])]
    made = Dataset(name, pool.x[own], labels[0], pool.x_test[test], labels[1], 10, groups.astype(np.int64))
    if pool.test_groups is None:
        return made
    theirs, number = pool.test_groups[test], np.full(int(pool.groups.max()) + 1, -1, dtype=np.int64)
    number[writers] = np.arange(len(writers))
    return replace(made, test_groups=np.where(theirs < 0, -1, number[theirs]))


def _load_isic(name: str, folder: Path) -> Dataset:
    train, test, centres = load_isic(folder)
    return Dataset(name, *train, *test, num_classes=DATASETS[name].num_classes, groups=centres)


def _in_folders(load: Callable[[str, Path], tuple[Part, Part]]) -> Callable[[str, Path], Dataset]:
    def whole(name: str, folder: Path) -> Dataset:
        train, test = load(name, folder)
        return Dataset(name, *train, *test, num_classes=DATASETS[name].num_classes)

    return whole


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


_LOADERS: dict[str, Callable[[str, Path], tuple[Part, Part]]] = {
    "cifar10": _load_cifar,
    "cifar100": _load_cifar,
    "fashion-mnist": _load_idx,
    "mnist": _load_idx,
    "svhn": _load_svhn,
}
_FOLDERS: dict[str, Callable[[str, Path], Dataset]] = {
    "cinic10": _in_folders(load_cinic10),
    "femnist": _load_femnist,
    "femnist-letters": _load_femnist,
    "isic2019": _load_isic,
    "tiny-imagenet": _in_folders(load_tiny_imagenet),
}


def _download(name: str, folder: Path) -> None:
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
            f"{name} could not be downloaded to {folder} ({cause}); put there: {wanted}"
        ) from cause

"""The known data sets, the places of their files under the data root, and their publishers' md5 sums.

These are plain records. Importing this module imports neither torch nor scikit-learn, so that listing is
fast. The md5 sums are those that torchvision checks. For the unpacked IDX files they are those of the
unpacked genuine archives.
"""

from __future__ import annotations

from dataclasses import dataclass

from raffed.errors import UnknownNameError


@dataclass(frozen=True)
class DataFile:
    """A published file.

    Attributes:
        path: Where the file is, relative to the data root.
        md5: Its md5 sum.
        gz_md5: The md5 sum of `path` + ".gz"; "" if there is no such file.
    """

    path: str
    md5: str
    gz_md5: str = ""


@dataclass(frozen=True)
class DatasetInfo:
    """What a user wants to know about a data set before loading it.

    `shape` is that of one stored input: (channels, height, width) for images. `num_train` and `num_test` are
    0 where they depend on the copy at hand (FEMNIST). `folder` is the place of a data set that is not a list
    of files with md5 sums. `max_value` is the stored value that means 1.0. How its inputs are prepared is in
    `preparation.TRANSFORMS`.
    """

    title: str
    num_classes: int
    shape: tuple[int, ...]
    num_train: int
    num_test: int
    files: tuple[DataFile, ...]
    origin: str
    class_names: tuple[str, ...] = ()
    folder: str = ""
    max_value: int = 255


def _idx_files(folder: str, md5s: dict[str, tuple[str, str]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(f"{folder}/raw/{name}-ubyte", md5, gz_md5) for name, (md5, gz_md5) in md5s.items())


_FASHION_FILES = _idx_files(
    "FashionMNIST",
    {
        "train-images-idx3": ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        "train-labels-idx1": ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
        "t10k-images-idx3": ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        "t10k-labels-idx1": ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    },
)
_MNIST_FILES = _idx_files(
    "MNIST",
    {
        "train-images-idx3": ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        "train-labels-idx1": ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
        "t10k-images-idx3": ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
        "t10k-labels-idx1": ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    },
)
_CIFAR10_FILES = (
    DataFile("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
    DataFile("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
    DataFile("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
    DataFile("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
    DataFile("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    DataFile("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
    DataFile("cifar-10-batches-py/batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
)
_CIFAR100_FILES = (
    DataFile("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
    DataFile("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    DataFile("cifar-100-python/meta", "7973b15100ade9c7d40fb424638fde48"),
)
_SVHN_FILES = (
    DataFile("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    DataFile("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)

_NUMERALS = tuple("0123456789")
_FASHION_CLASSES = (
    *("T-shirt", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Boot"),
)
_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FEMNIST_CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

_FASHION_ORIGIN = "Xiao et al. 2017, github.com/zalandoresearch/fashion-mnist"
_CIFAR_ORIGIN = "Krizhevsky 2009, cs.toronto.edu/~kriz/cifar.html"
_DIGITS_ORIGIN = "bundled with scikit-learn (load_digits; UCI optdigits): nothing to download"
_SVHN_ORIGIN = "Netzer et al. 2011, ufldl.stanford.edu/housenumbers (without 'extra')"
_FEMNIST_ORIGIN = (
    "LEAF, Caldas et al. 2018: FEMNIST/*.npz, FEMNIST/*.json, FEMNIST/{train,test}/*.json, or femnist/data "
    "as LEAF leaves it"
)

_CINIC_ORIGIN = "Darlow et al. 2018: CINIC-10/{train,test}/CLASS/*.png"
_TINY_ORIGIN = "Stanford CS231n: tiny-imagenet-200/ as unpacked; its validation part is the test set"
_ISIC_ORIGIN = "ISIC 2019 in FLamby's six centres: ISIC2019/train_test_split and the image folder"
_ISIC_CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")

GROUP = "raffed.datasets"  # of entry points
DATASETS: dict[str, DatasetInfo] = {
    "cifar10": DatasetInfo(
        "CIFAR-10",
        10,
        (3, 32, 32),
        50_000,
        10_000,
        _CIFAR10_FILES,
        _CIFAR_ORIGIN,
        _CIFAR10_CLASSES,
    ),
    "cifar100": DatasetInfo(
        "CIFAR-100",
        100,
        (3, 32, 32),
        50_000,
        10_000,
        _CIFAR100_FILES,
        _CIFAR_ORIGIN,
    ),
    "cinic10": DatasetInfo(
        "CINIC-10",
        10,
        (3, 32, 32),
        90_000,
        90_000,
        (),
        _CINIC_ORIGIN,
        _CIFAR10_CLASSES,
        "CINIC-10",
    ),
    "digits": DatasetInfo(
        "Digits",
        10,
        (1, 8, 8),
        1442,
        355,
        (),
        _DIGITS_ORIGIN,
        _NUMERALS,
        max_value=16,
    ),
    "fashion-mnist": DatasetInfo(
        "Fashion-MNIST",
        10,
        (1, 28, 28),
        60_000,
        10_000,
        _FASHION_FILES,
        _FASHION_ORIGIN,
        _FASHION_CLASSES,
    ),
    "femnist": DatasetInfo(
        "FEMNIST",
        62,
        (1, 28, 28),
        0,
        0,
        (),
        _FEMNIST_ORIGIN,
        _FEMNIST_CLASSES,
        "FEMNIST",
    ),
    "femnist-letters": DatasetInfo(
        "FEMNIST, letters a to j",
        10,
        (1, 28, 28),
        0,
        0,
        (),
        _FEMNIST_ORIGIN,
        tuple("abcdefghij"),
        "FEMNIST",
    ),
    "isic2019": DatasetInfo(
        "ISIC 2019",
        8,
        (3, 224, 224),
        18_597,
        4_650,
        (),
        _ISIC_ORIGIN,
        _ISIC_CLASSES,
        "ISIC2019",
    ),
    "mnist": DatasetInfo(
        "MNIST",
        10,
        (1, 28, 28),
        60_000,
        10_000,
        _MNIST_FILES,
        "LeCun, Cortes, Burges 1998",
        _NUMERALS,
    ),
    "svhn": DatasetInfo(
        "SVHN",
        10,
        (3, 32, 32),
        73_257,
        26_032,
        _SVHN_FILES,
        _SVHN_ORIGIN,
        _NUMERALS,
    ),
    "tiny-imagenet": DatasetInfo(
        "Tiny-ImageNet",
        200,
        (3, 64, 64),
        100_000,
        10_000,
        (),
        _TINY_ORIGIN,
        folder="tiny-imagenet-200",
    ),
}
ALIASES = {
    "famnist": "fashion-mnist",
    "fashionmnist": "fashion-mnist",
    "fmnist": "fashion-mnist",
    "cifar-10": "cifar10",
    "cifar-100": "cifar100",
    "cinic-10": "cinic10",
    "isic": "isic2019",
    "tiny-imagenet-200": "tiny-imagenet",
}


def dataset_name(text: str) -> str:
    """Return the key of DATASETS that `text` means, in any case or as an alias.

    Raises:
        UnknownNameError: No data set has this name.
    """
    name = text.strip().lower()
    name = ALIASES.get(name, name)
    if name not in DATASETS:
        raise UnknownNameError("dataset", text, DATASETS)
    return name

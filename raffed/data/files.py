"""Read files that may be missing, damaged or made by a stranger, and data sets that are folders of images.

Nothing is unpickled here. The publishers of CINIC-10, Tiny-ImageNet and ISIC2019 state no md5 sums. Instead
raffed checks that every class folder has the published number of images, and that every image can be opened
and has the published size. Threads read the images, in the order of their names.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.budget import allow, check_file
from raffed.data.catalogue import DATASETS, DataFile
from raffed.errors import DataFileError, UsageError, check_permitted

if TYPE_CHECKING:
    from PIL import Image


IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
InputArray = npt.NDArray[np.generic]  # what a network reads: pixels, rows of a table, numbers of words

# Of pictures; Pillow would run another program for some (EPS), whatever the name of the file
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_WHERE = "point RAFFED_DATA or --data-root at the folder that holds it, or fetch it with --download"


def data_root(root: str | Path | None) -> Path:
    """Return the folder of the data sets: `root`, or that of the environment variable RAFFED_DATA.

    Raises:
        DataFileError: Neither is given.
    """
    text = str(root) if root is not None else os.environ.get("RAFFED_DATA", "")
    if not text:
        raise DataFileError(
            "no data folder is known: set RAFFED_DATA or give --data-root (only 'digits' comes without files)"
        )
    return Path(text).expanduser()


def check_published(root: Path, files: Iterable[DataFile]) -> None:
    """Raise a DataFileError unless every file exists and has the published md5 sum."""
    for file in files:
        _checked_bytes(root / file.path, file.md5)


def read_idx(root: Path, file: DataFile) -> ByteArray:
    """Read a published IDX file of unsigned bytes; if it is missing, the ".gz" file beside it.

    LeCun's format is 0, 0, 8, rank, then sizes as big-endian uint32.
    """
    path = root / file.path
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and file.gz_md5 and packed.exists():
        raw = gzip.decompress(_checked_bytes(packed, file.gz_md5))
    else:
        raw = _checked_bytes(path, file.md5)
    sizes = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4)
    data = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    return data.reshape([int(size) for size in sizes]).copy()  # the copy is writable, unlike the bytes


@contextlib.contextmanager
def reading_npz(path: Path, error: type[UsageError]) -> Iterator[None]:
    """Refuse an npz file that claims too much memory (`raffed.budget`) before anything is unpacked.

    Whatever reading the file raises inside becomes an error of the type `error`.
    """
    try:
        check_file(path, error)
        with zipfile.ZipFile(path) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        allow(claimed, f"{path}, unpacked,", error)
        yield
    except FileNotFoundError as cause:
        raise error(f"{path} is missing") from cause
    except UsageError:
        raise
    except Exception as cause:  # numpy reads headers with Python's parser, which raises errors of many types
        check_permitted(path, cause)
        reason = str(cause).partition("\n")[0]
        raise error(f"{path} cannot be read as an npz file: {type(cause).__name__}: {reason}") from cause


def read_npz(
    path: Path, names: Iterable[str], error: type[UsageError], optional: Iterable[str] = ()
) -> dict[str, npt.NDArray[np.generic]]:
    """Read the named arrays, and those optional ones that exist, of an npz file that anyone may have made.

    Pickles are refused, as `reading_npz` says. All refusals raise `error`.
    """
    with reading_npz(path, error), np.load(path, allow_pickle=False) as stored:
        absent = sorted(set(names) - set(stored.files))
        if absent:
            raise error(
                f"{path} lacks the arrays {', '.join(absent)}; it holds {', '.join(stored.files[:12])}"
            )
        wanted = [*names, *(name for name in optional if name in stored.files)]
        return {name: np.asarray(stored[name]) for name in wanted}


@contextlib.contextmanager
def reading_image(path: Path) -> Iterator[Image.Image]:
    """Open an image file. What is no image, or is damaged, becomes a DataFileError that names the file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS) as file:
            yield file
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path} is missing") from error
    except UnidentifiedImageError as error:
        raise DataFileError(f"{path} is not an image that can be read; remove it or convert it") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataFileError(f"{path} is damaged or cannot be read: {error}") from error


def _checked_bytes(path: Path, md5: str) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as cause:
        raise DataFileError(f"{path} is missing (expected md5 {md5}); {_WHERE}") from cause
    except OSError as cause:
        raise DataFileError(f"{path} cannot be read: {cause}") from cause
    got = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if got != md5:
        raise DataFileError(
            f"{path} is damaged or another file: its md5 is {got}, but that of the published file is {md5}; "
            f"delete it, then {_WHERE}"
        )
    return raw


Part = tuple[ByteArray, IntArray]
TINY_FOLDER = "tiny-imagenet-200"


def load_cinic10(name: str, root: Path) -> tuple[Part, Part]:
    """Read ROOT/CINIC-10/{train,test}/CLASS/*.png (Darlow et al. 2018), with 9,000 images of each class in
    each.

    The folder `valid` is not used.
    """
    info, folder = DATASETS[name], _folder(root, "CINIC-10", name)

    def part(which: str, count: int) -> Part:
        each = count // info.num_classes
        return _labelled(
            [_images(folder / which / label, "*.png", each) for label in info.class_names], info.shape
        )

    return part("train", info.num_train), part("test", info.num_test)


def load_tiny_imagenet(name: str, root: Path) -> tuple[Part, Part]:
    """Read Tiny-ImageNet from ROOT/tiny-imagenet-200.

    It needs wnids.txt, train/WNID/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt. Labels number
    the wnids in alphabetical order. The official test images have no labels, so the validation part is the
    test set.
    """
    info, folder = DATASETS[name], _folder(root, TINY_FOLDER, name)
    wnids = sorted(_lines(folder / "wnids.txt"))
    if len(set(wnids)) != info.num_classes:
        raise DataFileError(
            f"{folder / 'wnids.txt'} names {len(set(wnids))} classes, the published file {info.num_classes}"
        )
    each, few = info.num_train // info.num_classes, info.num_test // info.num_classes
    train = [_images(folder / "train" / wnid / "images", "*.JPEG", each) for wnid in wnids]
    listed: dict[str, list[Path]] = {wnid: [] for wnid in wnids}
    annotations = folder / "val" / "val_annotations.txt"
    for line in _lines(annotations):
        file, _, rest = line.partition("\t")
        wnid = rest.split("\t")[0]
        if wnid not in listed or "/" in file or "\\" in file:
            raise DataFileError(f"{annotations}: {line[:80]!r} is not an image of a class in wnids.txt")
        listed[wnid].append(folder / "val" / "images" / file)
    wrong = [wnid for wnid, paths in listed.items() if len(set(paths)) != few]
    if wrong:
        raise DataFileError(
            f"{annotations}: class {wrong[0]} has {len(set(listed[wrong[0]]))} images; {few} were published"
        )
    return _labelled(train, info.shape), _labelled([sorted(paths) for paths in listed.values()], info.shape)


def read_images(
    paths: Sequence[Path], shape: tuple[int, ...], resize: Callable[[ByteArray], ByteArray] | None = None
) -> ByteArray:
    """Read image files as RGB, uint8 [n, 3, H, W]. `resize` maps each image [H, W, 3] to the wanted size.

    Raises:
        DataFileError: A file cannot be read or has another size. The message names the file.
    """
    images = np.empty((len(paths), *shape), dtype=np.uint8)

    def read(place: int) -> None:
        path = paths[place]
        with reading_image(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        pixels = pixels if resize is None else resize(pixels)
        if pixels.shape != (shape[1], shape[2], 3):
            got, wanted = "x".join(map(str, pixels.shape[:2])), f"{shape[1]}x{shape[2]}"
            raise DataFileError(f"{path} is {got} pixels, but the published images are {wanted}")
        images[place] = pixels.transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(read, range(len(paths))):
            pass
    return images


def _labelled(classes: list[list[Path]], shape: tuple[int, ...]) -> Part:
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(paths) for paths in classes])
    return read_images([path for paths in classes for path in paths], shape), labels


def _folder(root: Path, name: str, dataset: str) -> Path:
    if not (root / name).is_dir():
        raise DataFileError(
            f"{root / name} is missing (no md5 is published); unpack {dataset}'s archive there, "
            "and point RAFFED_DATA or --data-root at the folder that holds it"
        )
    return root / name


def _images(folder: Path, pattern: str, count: int) -> list[Path]:
    paths = sorted(folder.glob(pattern))
    if len(paths) != count:
        raise DataFileError(
            f"{folder} holds {len(paths)} files {pattern}, but {count} were published; unpack them again"
        )
    return paths


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise DataFileError(f"{path} cannot be read: {cause}") from cause


# ISIC2019 in FLamby's six centres (Ogier du Terrail et al. 2022): skin lesions of 8 classes.
#
# There are 18,597 training and 4,650 test images. The files are:
#
#     ROOT/ISIC2019/train_test_split                             FLamby's csv (also .csv): image, target,
#                                                                center, fold, ...
#     ROOT/ISIC2019/ISIC_2019_Training_Input_preprocessed/*.jpg  what FLamby's scripts made of the images, or
#     ROOT/ISIC2019/ISIC_2019_Training_Input/*.jpg               the images as published, which are then
#                                                                preprocessed here in the same way
#
# FLamby keeps rectangles with a shorter side of 224, and its augmentation and its test both end with
# 200x200. Here the central 224x224 of each image is kept, which contains the whole test crop. There are two
# more differences. Colours that colour constancy raises above 255 are clipped, while FLamby's conversion
# wraps round to black. And nothing is saved as JPEG in between.


SIDE = 224
POWER = 6  # degree of the norm in colour constancy (Finlayson & Trezzi 2004)
CLASSES = DATASETS["isic2019"].class_names
TRAIN_COUNTS = (  # for each centre and class, counted in FLamby's file (docs/papers/fedmr.md §E1)
    (2279, 3363, 2245, 606, 923, 97, 87, 330),
    (20, 2977, 2, 0, 96, 23, 45, 0),
    (533, 1470, 174, 20, 379, 40, 64, 11),
    (276, 649, 223, 86, 406, 20, 3, 144),
    (166, 349, 0, 0, 140, 0, 0, 0),
    (58, 276, 5, 0, 6, 4, 2, 0),
)
TEST_SIZES = (2483, 791, 672, 452, 164, 88)
_FOLDERS = ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input")

Rows = list[tuple[str, int, int]]  # image, class, centre


def load_isic(name: str, root: Path) -> tuple[Part, Part, IntArray]:
    """Return (train, test, centre of every training image), with images uint8 [n, 3, 224, 224].

    Raises:
        DataFileError: A file is missing or is not the published one.
    """
    folder = root / "ISIC2019"
    table = next(
        (path for path in (folder / "train_test_split", folder / "train_test_split.csv") if path.exists()),
        None,
    )
    images = next((folder / name for name in _FOLDERS if (folder / name).is_dir()), None)
    if table is None or images is None:
        missing = "train_test_split" if table is None else " or ".join(_FOLDERS)
        raise DataFileError(
            f"{folder / missing} is missing (no md5 is published); put FLamby's csv and the images of ISIC "
            "2019 there, and point RAFFED_DATA or --data-root at the folder that holds ISIC2019/"
        )
    rows = _checked(table)
    raw = images.name == _FOLDERS[1]

    def prepared(pixels: ByteArray) -> ByteArray:
        return centre_square(colour_constancy(shorter_side(pixels)) if raw else pixels)

    def part(fold: Rows) -> tuple[ByteArray, IntArray]:
        paths = [images / f"{image}.jpg" for image, _, _ in fold]
        x = read_images(paths, (3, SIDE, SIDE), prepared)
        return x, np.array([target for _, target, _ in fold], dtype=np.int64)

    return (
        part(rows["train"]),
        part(rows["test"]),
        np.array([centre for _, _, centre in rows["train"]], dtype=np.int64),
    )


def colour_constancy(pixels: ByteArray) -> ByteArray:
    """Divide every channel of [H, W, 3] by its Minkowski norm of degree 6, such that grey stays grey."""
    norms = np.mean(pixels.astype(np.float64) ** POWER, axis=(0, 1)) ** (1 / POWER)
    gains = np.sqrt(np.sum(norms**2)) / (np.maximum(norms, 1e-12) * np.sqrt(3))
    evened: ByteArray = np.clip(pixels * gains, 0, 255).astype(np.uint8)
    return evened


def shorter_side(pixels: ByteArray, side: int = SIDE) -> ByteArray:
    """Resize [H, W, 3] bilinearly so that its shorter side is `side`. The other side follows,
    rounded down.
    """
    from PIL import Image

    height, width = pixels.shape[:2]
    ratio = side / min(height, width)
    size = (max(int(width * ratio), side), max(int(height * ratio), side))
    return np.asarray(Image.fromarray(pixels).resize(size, resample=Image.Resampling.BILINEAR))


def centre_square(pixels: ByteArray) -> ByteArray:
    """Return the central 224x224 of [H, W, 3]."""
    top, left = ((side - SIDE) // 2 for side in pixels.shape[:2])
    return pixels[max(top, 0) : max(top, 0) + SIDE, max(left, 0) : max(left, 0) + SIDE]


def _checked(table: Path) -> dict[str, Rows]:
    """Return the rows of the csv by fold, in their order.

    There is a published number for each centre, class and fold, with which they are compared.
    """
    import pandas as pd

    kinds = {"image": str, "target": int, "center": int, "fold": str}
    try:
        frame = pd.read_csv(table, usecols=list(kinds), dtype=kinds)
    except (OSError, ValueError) as cause:
        raise DataFileError(
            f"{table} is not FLamby's table with image, target, center and fold: {cause!r}"
        ) from cause
    rows: dict[str, Rows] = {"train": [], "test": []}
    counts = {fold: np.zeros((len(TRAIN_COUNTS), len(CLASSES)), dtype=np.int64) for fold in rows}
    for image, target, centre, fold, twice in zip(
        *(frame[name].tolist() for name in kinds), frame["image"].duplicated(), strict=True
    ):
        known = fold in rows and 0 <= target < len(CLASSES) and 0 <= centre < len(TRAIN_COUNTS)
        if twice or not known or Path(str(image)).name != image:
            raise DataFileError(
                f"{table}: image {str(image)[:40]!r}: class {target}, centre {centre}, or listed twice"
            )
        rows[fold].append((image, target, centre))
        counts[fold][centre, target] += 1
    wrong = np.argwhere(counts["train"] != np.array(TRAIN_COUNTS))
    if len(wrong):
        centre, label = wrong[0].tolist()
        trained = f"{counts['train'][centre, label]} images of {CLASSES[label]}"
        raise DataFileError(
            f"{table}: centre {centre} trains on {trained}, in the published file on "
            f"{TRAIN_COUNTS[centre][label]}"
        )
    tests = counts["test"].sum(axis=1).tolist()
    if tests != list(TEST_SIZES):
        raise DataFileError(
            f"{table}: the centres have {tests} test images, in the published file {list(TEST_SIZES)}"
        )
    return rows

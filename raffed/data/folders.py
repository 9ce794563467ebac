"""Data sets that are published as folders of image files: CINIC-10 and Tiny-ImageNet.

Their publishers state no md5 sums. Instead raffed checks that every class folder has the published number of
images, and that every image can be opened and has the published size. Threads read the images, in the order
of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from raffed.data.catalogue import DATASETS
from raffed.data.files import FORMATS, ByteArray, IntArray
from raffed.errors import DataFileError

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
            f"{folder / 'wnids.txt'} names {len(set(wnids))} classes, but the published file names "
            f"{info.num_classes}"
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
            f"{annotations}: class {wrong[0]} has {len(set(listed[wrong[0]]))} images, but {few} were "
            "published"
        )
    return _labelled(train, info.shape), _labelled([sorted(paths) for paths in listed.values()], info.shape)


def read_images(
    paths: Sequence[Path], shape: tuple[int, ...], resize: Callable[[ByteArray], ByteArray] | None = None
) -> ByteArray:
    """Read image files as RGB, uint8 [n, 3, H, W]. `resize` maps each image [H, W, 3] to the wanted size.

    Raises:
        DataFileError: A file cannot be read or has another size. The message names the file.
    """
    from PIL import Image, UnidentifiedImageError

    made = np.empty((len(paths), *shape), dtype=np.uint8)

    def read(place: int) -> None:
        path = paths[place]
        try:
            with Image.open(path, formats=FORMATS) as image:
                pixels = np.asarray(image.convert("RGB"))
        except FileNotFoundError as cause:
            raise DataFileError(
                f"{path} is missing (no md5 is published); unpack the published archive again"
            ) from cause
        except (
            OSError,
            UnidentifiedImageError,
            SyntaxError,
            ValueError,
            Image.DecompressionBombError,
        ) as cause:
            raise DataFileError(f"{path} is damaged ({cause}); unpack the published archive again") from cause
        pixels = pixels if resize is None else resize(pixels)
        if pixels.shape != (shape[1], shape[2], 3):
            got, wanted = "x".join(map(str, pixels.shape[:2])), f"{shape[1]}x{shape[2]}"
            raise DataFileError(f"{path} is {got} pixels, but the published images are {wanted}")
        made[place] = pixels.transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(read, range(len(paths))):
            pass
    return made


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
    found = sorted(folder.glob(pattern))
    if len(found) != count:
        raise DataFileError(
            f"{folder} holds {len(found)} files {pattern}, but {count} were published; unpack the "
            "archive again"
        )
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise DataFileError(f"{path} cannot be read: {cause}") from cause

"""Images in CLASS/file or CLIENT/CLASS/file, perhaps below folders for training, validation and tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.budget import allow
from raffed.data.files import reading_image
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.data.importers.values import are_parts, chosen_parts, part_named
from raffed.errors import DataFileError, check_choice, check_range

if TYPE_CHECKING:
    from PIL import Image

ByteArray = npt.NDArray[np.uint8]
COLOURS = ("auto", "grey", "rgb")
COLOUR_BYTES = 3  # of a pixel
BESIDE = "raffed-beside-colours"  # key in an image's `info` for what was found before it was converted
GREY_MODES = ("1", "L", "LA")
KNOWN_MODES = (*GREY_MODES, "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
NOT_DATA = ("thumbs.db", "desktop.ini", "__macosx")  # what operating systems leave, beside hidden files


@dataclass(frozen=True)
class ImageFile:
    """One image, with the names of its class and, if there are clients, its client."""

    path: Path
    label: str
    client: str = ""


def import_folder(
    folder: str | Path,
    *,
    size: int = 0,
    colour: str = "auto",
    test: float = TEST_SHARE,
    seed: int = 0,
    name: str = "",
) -> Imported:
    """Read a folder of images. The names of the folders are those of the classes and clients.

    Args:
        folder: The folder. Below it, or below its folders for training and tests, lie CLASS/file or
            CLIENT/CLASS/file.
        size: Side in pixels to which all images are resized (bilinear). Default 0: all have one size already.
        colour: "grey" (one channel), "rgb" (three), or "auto": grey if all images are.
        test: Fraction of the images that becomes the test set if no folder holds test or validation images.
        seed: Decides which images are drawn.
        name: Beginning of every message; by default the folder.

    Returns:
        The data set; samples are uint8 [N, channels, H, W].

    Raises:
        UsageError: A file is not an image, sizes differ, or the layout is mixed. The message names the file.
    """
    check_choice(f"{folder}: colour", colour, COLOURS)
    check_range(f"{folder}: size", size, 0, 4096)
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataFileError(f"{root} is missing" if not root.exists() else f"{root} is not a folder")
    train_folder, test_folder, notes = _parts(root)
    train = _images(train_folder)
    rest = _images(test_folder) if test_folder is not None else []
    if rest:
        _check_depths(root, [train[0], rest[0]])
    x, left_out = read_images([image.path for image in (*train, *rest)], size, colour)
    given = _columns(train, x[: len(train)])
    tests = _columns(rest, x[len(train) :]) if rest else None
    facts = DataFacts("images", (*notes, *left_out), resized=size > 0)
    share = 0.0 if rest else test
    return imported(name or str(folder), given, tests, share=share, seed=seed, facts=facts)


def _columns(files: Sequence[ImageFile], x: ByteArray) -> Columns:
    clients = [file.client for file in files] if files[0].client else None
    return Columns(x, [file.label for file in files], clients)


def _parts(root: Path) -> tuple[Path, Path | None, tuple[str, ...]]:
    """Return the folders of the training and the test part by their names, and notes.

    A folder without parts is the training part. Folders that hold no folders are classes.

    Raises:
        DataFileError: The training part is missing, or other folders lie beside the parts.
        UsageError: Two folders mean the same part.
    """
    below = _folders(root)
    named = [folder.name for folder in below if part_named(folder.name)]
    plain = {part_named(name) for name in named} <= {"validation"}
    if plain or not any(_folders(root / name) for name in named):
        return root, None, ()
    if other := next((folder.name for folder in below if folder.name not in named), None):
        raise DataFileError(
            f"{root}: {named[0]!r} is the name of a part of a data set, and {other!r} beside it is not; "
            f"leave only parts there (train, test, val), or rename {named[0]!r} if it is a client or class"
        )
    counts = {name: sum(len(files) for _, files in _walked(root / name)) for name in named}
    chosen = chosen_parts(str(root), counts)
    if chosen is None:
        raise DataFileError(
            f"{root} holds {' and '.join(map(repr, named))}, and no folder for training; add one named train"
        )
    tests = None if chosen.test is None else _inner(root / chosen.test)
    return _inner(root / chosen.train), tests, chosen.notes


def _inner(folder: Path) -> Path:
    """Return the folder inside if it is the only one and means the same part, as in seg_train/seg_train."""
    below = _folders(folder)
    same = len(below) == 1 and part_named(below[0].name) == part_named(folder.name)
    return below[0] if same else folder


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and _is_data(path.name))


def _is_data(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in NOT_DATA


def _walked(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield every folder below a folder with its files, also where links lead to them.

    Links that lead back end at the depth at which nothing may lie.

    Raises:
        DataFileError: A folder is empty or cannot be read, or one lies too deep.
    """

    def refuse(error: OSError) -> None:
        raise DataFileError(f"{error.filename} cannot be read ({error.strerror}); it must be readable")

    for place, folders, names in os.walk(root, followlinks=True, onerror=refuse):
        folder = Path(place)
        folders[:] = filter(_is_data, folders)
        files = [folder / name for name in names if _is_data(name)]
        depth = len(folder.relative_to(root).parts)
        if depth and not folders and not files:
            raise DataFileError(f"{folder} is empty; remove it or put images into it")
        if depth > 2:
            path = (files or [folder / folders[0]])[0]
            raise DataFileError(
                f"{path} lies too deep; images must lie in CLASS/file or CLIENT/CLASS/file below {root}, "
                "and folders for training and tests outside of these"
            )
        yield folder, files


def _images(root: Path) -> list[ImageFile]:
    """Return all images below a folder, in the order of their names.

    Raises:
        DataFileError: There are none, they lie at different depths, or the folders of the classes are named
            as parts are.
    """
    images: list[ImageFile] = []
    for path in sorted(path for _, files in _walked(root) for path in files):
        inside = path.relative_to(root).parts
        if len(inside) > 1:  # files beside the folders of the classes, such as a licence, are not data
            images.append(ImageFile(path, inside[-2], inside[0] if len(inside) == 3 else ""))
    if not images:
        raise DataFileError(f"{root} holds no images; they must lie in CLASS/file or CLIENT/CLASS/file")
    _check_depths(root, images)
    if are_parts(labels := sorted({image.label for image in images})):
        raise DataFileError(
            f"{root}: the folders that hold the images are named {' and '.join(labels)}, so these would be "
            f"the classes; parts must be outside and classes inside, as in {labels[-1]}/CLASS/file"
        )
    return images


def _check_depths(root: Path, images: Sequence[ImageFile]) -> None:
    first = images[0]
    other = next((image for image in images if bool(image.client) != bool(first.client)), None)
    if other is not None:
        raise DataFileError(
            f"{root}: {first.path.relative_to(root)} and {other.path.relative_to(root)} lie at different "
            "depths; all images must lie in CLASS/file, or all in CLIENT/CLASS/file"
        )


def read_images(
    paths: Sequence[Path], size: int = 0, colour: str = "auto"
) -> tuple[ByteArray, tuple[str, ...]]:
    """Read image files as uint8 [n, channels, H, W], turned upright as their EXIF data say.

    The second result holds notes about what the files have beside the colours of one picture.

    Raises:
        DataFileError: A file is not an image, has pixels of more than 8 bits, or differs in size from the
            first.
    """
    with ThreadPoolExecutor() as pool:
        first = _read(paths[0], size)
        pixels = len(paths) * first.width * first.height
        allow(2 * COLOUR_BYTES * pixels, f"{len(paths)} images as {paths[0]}", DataFileError)
        read = list(pool.map(lambda path: _read(path, size, (str(paths[0]), first)), paths))
    names = [str(path) for path in paths]
    return stacked_images(read, names, size, colour), not_colours(read, names)


def _read(path: Path, size: int, first: tuple[str, Image.Image] | None = None) -> Image.Image:
    """Read an image. One that is not resized is decoded only if it has the size of the first."""
    from PIL import ImageOps

    with reading_image(path) as file:
        _check_mode(file, str(path))
        allow(file.width * file.height * COLOUR_BYTES, str(path), DataFileError)
        if not size and first is not None and sorted(file.size) != sorted(first[1].size):
            raise _of_another_size(str(path), file, *first)
        image = ImageOps.exif_transpose(file)
        image.load()
        beside = _beside_colours(file)
    resized = _resized(image, size)
    resized.info[BESIDE] = beside
    return resized


def _beside_colours(image: Image.Image) -> str:
    """Return what of an image is left out beside the colours of one picture; "" if it is nothing."""
    if getattr(image, "n_frames", 1) > 1:
        return "only the first frame is used"
    alpha = image.getchannel("A") if "A" in image.getbands() else None
    seen_through = "transparency" in image.info if alpha is None else bool(alpha.getextrema()[0] != 255)
    return "transparency is not used" if seen_through else ""


def not_colours(images: Sequence[Image.Image], names: Sequence[str]) -> tuple[str, ...]:
    """Return notes about what images hold beside the colours of one picture, all of which is left out.

    Args:
        images: Decoded images.
        names: What the notes call each image.
    """
    extras = [image.info.get(BESIDE) or _beside_colours(image) for image in images]
    return tuple(
        f"{names[extras.index(what)]}: {what} ({extras.count(what)} of {len(images)} images)"
        for what in sorted(set(extras) - {""})
    )


def _of_another_size(name: str, image: Image.Image, other: str, first: Image.Image) -> DataFileError:
    return DataFileError(
        f"{name} is {image.width}x{image.height} pixels, but {other} is {first.width}x{first.height}; give "
        "size=N to resize all images to N x N"
    )


def _check_mode(image: Image.Image, name: str) -> None:
    if image.mode not in KNOWN_MODES:
        raise DataFileError(f"{name} has pixels of mode {image.mode}, but must have 8 bits per channel")


def _resized(image: Image.Image, size: int) -> Image.Image:
    from PIL import Image

    if not size:
        return image
    # A palette and transparency cannot be interpolated
    plain = image.convert("L" if image.mode in GREY_MODES else "RGB")
    return plain.resize((size, size), Image.Resampling.BILINEAR)


def stacked_images(
    images: Sequence[Image.Image], names: Sequence[str], size: int = 0, colour: str = "auto"
) -> ByteArray:
    """Return decoded images as uint8 [n, channels, H, W].

    Args:
        images: At least one image.
        names: What messages call each image.
        size: Side in pixels to which all are resized; 0 for no change.
        colour: See `import_folder`.

    Raises:
        DataFileError: Two images have different sizes and `size` is 0, or one has pixels of more than 8 bits.
    """
    for image, name in zip(images, names, strict=True):
        _check_mode(image, name)
    grey = colour == "grey" or (colour == "auto" and all(image.mode in GREY_MODES for image in images))
    first = _resized(images[0], size)
    stacked = np.empty((len(images), 1 if grey else 3, first.height, first.width), np.uint8)
    for place, image in enumerate(images):
        alike = _resized(image, size)
        if alike.size != first.size:
            raise _of_another_size(names[place], alike, names[0], first)
        pixels = np.asarray(alike.convert("L" if grey else "RGB"))
        stacked[place] = pixels[None] if grey else pixels.transpose(2, 0, 1)
    return stacked

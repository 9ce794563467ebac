"""Images in CLASS/file or CLIENT/CLASS/file, perhaps below folders for training, validation and tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.budget import allow
from raffed.data.files import FORMATS
from raffed.data.importers.image_parts import image_parts, is_data, parts_inside
from raffed.data.importers.imported import TEST_SHARE, Columns, DataFacts, Imported, imported
from raffed.data.importers.values import are_parts
from raffed.errors import DataFileError, check_choice, check_range

if TYPE_CHECKING:
    from PIL import Image

ByteArray = npt.NDArray[np.uint8]
COLOURS = ("auto", "grey", "rgb")
COLOUR_BYTES = 3  # of a pixel
GREY_MODES = ("1", "L", "LA")
KNOWN_MODES = (*GREY_MODES, "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


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
    source: str = "",
) -> Imported:
    """Read a folder of images. The names of the folders are those of the classes and clients.

    Args:
        folder: The folder. Below it, or below its folders for training and tests, lie CLASS/file or
            CLIENT/CLASS/file. See `image_parts` for the names of these folders.
        size: Side in pixels to which all images are resized (bilinear). Default 0: all have one size already.
        colour: "grey" (one channel), "rgb" (three), or "auto": grey if all images are.
        test: Fraction of the images that becomes the test set if no folder holds test or validation images.
        seed: Decides which images are drawn.
        name: Beginning of every message; by default the folder.
        source: Where the data came from, as typed.

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
    parts = image_parts(root)
    train, rest = _images(parts.train), _images(parts.test) if parts.test is not None else []
    if rest and bool(train[0].client) != bool(rest[0].client):
        raise DataFileError(
            f"{root}: {train[0].path.relative_to(root)} and {rest[0].path.relative_to(root)} lie at "
            "different depths; both parts must have the layout CLASS/file, or both CLIENT/CLASS/file"
        )
    x = read_images([one.path for one in (*train, *rest)], size, colour)
    made = _columns(train, x[: len(train)])
    tests = _columns(rest, x[len(train) :]) if rest else None
    facts = DataFacts("images", parts.notes, resized=size > 0)
    share = 0.0 if rest else test
    return imported(name or str(folder), made, tests, share=share, seed=seed, source=source, facts=facts)


def _columns(files: Sequence[ImageFile], x: ByteArray) -> Columns:
    clients = [one.client for one in files] if files[0].client else None
    return Columns(x, [one.label for one in files], clients)


def _images(root: Path) -> list[ImageFile]:
    """Return all images below a folder, in the order of their names.

    Raises:
        DataFileError: There are none, a folder is empty, images lie too deep or at different depths, or the
            folders of the classes are named as parts are.
    """
    found: list[ImageFile] = []
    for path in sorted(_files(root, root)):
        inside = path.relative_to(root).parts
        # Files beside the folders of the classes, such as a licence, are not data
        if len(inside) == 1:
            continue
        found.append(ImageFile(path, inside[-2], inside[0] if len(inside) == 3 else ""))
    if not found:
        raise DataFileError(f"{root} holds no images; they must lie in CLASS/file or CLIENT/CLASS/file")
    other = next((one for one in found if bool(one.client) != bool(found[0].client)), None)
    if other is not None:
        raise DataFileError(
            f"{root}: {found[0].path.relative_to(root)} and {other.path.relative_to(root)} lie at "
            "different depths; all images must lie in CLASS/file, or all in CLIENT/CLASS/file"
        )
    if are_parts(labels := sorted({one.label for one in found})):
        raise DataFileError(
            f"{root}: the folders that hold the images are named {' and '.join(labels)}, so these would be "
            f"the classes; parts must be outside and classes inside, as in {labels[-1]}/CLASS/file"
        )
    return found


def _files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the files of a folder and of the folders in it, also where links lead to them.

    Links that lead back end at the depth at which nothing may lie.

    Raises:
        DataFileError: A folder is empty or cannot be read, or something lies too deep below `root`.
    """
    try:
        below = sorted(folder.iterdir())
    except OSError as error:
        raise DataFileError(f"{folder} cannot be read ({error.strerror}); it must be readable") from error
    if not below and folder != root:
        raise DataFileError(f"{folder} is empty; remove it or put images into it")
    for path in below:
        if not is_data([path.name]):
            continue
        if len(path.relative_to(root).parts) > 3:
            raise DataFileError(
                f"{path} lies too deep; images must lie in CLASS/file or CLIENT/CLASS/file below {root}"
                f"{parts_inside(root)}"
            )
        if path.is_dir():
            yield from _files(path, root)
        else:
            yield path


def read_images(paths: Sequence[Path], size: int = 0, colour: str = "auto") -> ByteArray:
    """Read image files as uint8 [n, channels, H, W], turned upright as their EXIF data say.

    Raises:
        DataFileError: A file is not an image, has pixels of more than 8 bits, or differs in size from the
            first.
    """
    with ThreadPoolExecutor() as pool:
        first = _read(paths[0], size)
        pixels = len(paths) * first.width * first.height
        allow(2 * COLOUR_BYTES * pixels, f"{len(paths)} images as {paths[0]}", DataFileError)
        read = list(pool.map(lambda path: _read(path, size, (str(paths[0]), first)), paths))
    return stacked_images(read, [str(path) for path in paths], size, colour)


def _read(path: Path, size: int, first: tuple[str, Image.Image] | None = None) -> Image.Image:
    """Read an image. One that is not resized is decoded only if it has the size of the first."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS) as file:
            _check_mode(file, str(path))
            allow(file.width * file.height * COLOUR_BYTES, str(path), DataFileError)
            if not size and first is not None and sorted(file.size) != sorted(first[1].size):
                raise _of_another_size(str(path), file, *first)
            image = ImageOps.exif_transpose(file)
            image.load()
    except DataFileError:
        raise
    except UnidentifiedImageError as error:
        raise DataFileError(f"{path} is not an image that can be read; remove it or convert it") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataFileError(f"{path} is damaged or cannot be read: {error}") from error
    return _resized(image, size)


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
    made = np.empty((len(images), 1 if grey else 3, first.height, first.width), np.uint8)
    for place, image in enumerate(images):
        alike = _resized(image, size)
        if alike.size != first.size:
            raise _of_another_size(names[place], alike, names[0], first)
        pixels = np.asarray(alike.convert("L" if grey else "RGB"))
        made[place] = pixels[None] if grey else pixels.transpose(2, 0, 1)
    return made

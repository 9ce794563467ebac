"""Read files that may be missing, damaged or made by a stranger. Nothing is unpickled here."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raffed.budget import allow, check_file
from raffed.data.catalogue import DataFile
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

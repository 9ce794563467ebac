"""Read files that may be missing, damaged or made by a stranger. Nothing is unpickled here."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from raffed.budget import allow, check_file
from raffed.data.catalogue import DataFile
from raffed.errors import DataFileError, UsageError

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


def read_published(root: Path, file: DataFile) -> bytes:
    """Return the bytes of a published file after checking its md5 sum.

    If the file is missing, a ".gz" file beside it is used.
    """
    path = root / file.path
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and file.gz_md5 and packed.exists():
        return gzip.decompress(_checked_bytes(packed, file.gz_md5))
    return _checked_bytes(path, file.md5)


def check_published(root: Path, files: Iterable[DataFile]) -> None:
    """Raise a DataFileError unless every file exists and has the published md5 sum."""
    for file in files:
        _check_md5(root / file.path, file.md5, _md5_of_file(root / file.path, file.md5))


def missing_file(path: Path, md5: str) -> DataFileError:
    """Return the error for a published file that does not exist."""
    return DataFileError(f"{path} is missing (expected md5 {md5}); {_WHERE}")


def read_idx(root: Path, file: DataFile) -> ByteArray:
    """Read an IDX file of unsigned bytes (LeCun's format: 0, 0, 8, rank, then sizes as big-endian uint32)."""
    raw = read_published(root, file)
    sizes = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4)
    data = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    return data.reshape([int(size) for size in sizes]).copy()  # the copy is writable, unlike the bytes


def read_npz(
    path: Path, names: Iterable[str], error: type[UsageError], optional: Iterable[str] = ()
) -> dict[str, npt.NDArray[np.generic]]:
    """Read the named arrays, and those optional ones that exist, of an npz file that anyone may have made.

    Pickles are refused. A file that claims too much memory (`raffed.budget`) is refused before anything is
    unpacked. All refusals raise `error`.
    """
    try:
        check_file(path, error)
        with zipfile.ZipFile(path) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        allow(claimed, f"{path}, unpacked,", error)
        with np.load(path, allow_pickle=False) as stored:
            absent = sorted(set(names) - set(stored.files))
            if absent:
                raise error(
                    f"{path} lacks the arrays {', '.join(absent)}; it holds {', '.join(stored.files[:12])}"
                )
            found = [*names, *(name for name in optional if name in stored.files)]
            return {name: np.asarray(stored[name]) for name in found}
    except FileNotFoundError as cause:
        raise error(f"{path} is missing") from cause
    except UsageError:
        raise
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, MemoryError, NotImplementedError) as cause:
        raise error(f"{path} cannot be read as an npz file: {cause}") from cause
    except (
        Exception
    ) as cause:  # numpy reads headers with Python's parser and tokeniser, which raise many kinds of errors
        raise error(f"{path} is a damaged npz file: {cause}") from cause


def _checked_bytes(path: Path, md5: str) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as cause:
        raise missing_file(path, md5) from cause
    except OSError as cause:
        raise DataFileError(f"{path} cannot be read: {cause}") from cause
    _check_md5(path, md5, hashlib.md5(raw, usedforsecurity=False).hexdigest())
    return raw


def _check_md5(path: Path, wanted: str, got: str) -> None:
    if got != wanted:
        raise DataFileError(
            f"{path} is damaged or another file: its md5 is {got}, but that of the published file is "
            f"{wanted}; delete it, then {_WHERE}"
        )


def _md5_of_file(path: Path, wanted: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    except FileNotFoundError as cause:
        raise missing_file(path, wanted) from cause
    except OSError as cause:
        raise DataFileError(f"{path} cannot be read: {cause}") from cause
    return digest.hexdigest()

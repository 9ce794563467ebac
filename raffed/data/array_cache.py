"""The arrays of data sets by content: one npz file each, under the SHA-256 of its arrays, without pickles.

A file is written under another name and renamed, so it is complete or does not exist.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raffed.errors import DataFileError, UsageError

FOLDER = "RAFFED_CACHE"
Array = npt.NDArray[np.generic]
ABOUT = "about"  # the array of text beside those of the data
CACHED = "cache:"  # a reference to stored arrays is this and their hash
_BLOCK = 2**24


@dataclass(frozen=True)
class StoredArrays:
    """Arrays of one data set, and what belongs to them.

    Attributes:
        arrays: Name → array: x, y, and perhaps x_test, y_test, clients, test_clients.
        words: Lists of text by name: class_names, client_names.
        name: Name for messages and results.
        source: Where the data came from, as typed.
        facts: What else is known, as JSON (`DataFacts`).
    """

    arrays: Mapping[str, Array]
    words: Mapping[str, tuple[str, ...]]
    name: str = ""
    source: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def sha256(self) -> str:
        """Return the SHA-256 (hex) over name, type, shape and bytes of every array, and over the words.

        `name`, `source` and `facts` do not count, so the same data from another file have the same hash.
        """
        digest = hashlib.sha256()
        for key in sorted(self.arrays):
            whole = np.ascontiguousarray(self.arrays[key])
            whole = whole.astype(whole.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{key} {whole.dtype.str} {whole.shape}\n".encode())
            flat = whole.reshape(-1).view(np.uint8)
            for first in range(0, len(flat), _BLOCK):
                digest.update(flat[first : first + _BLOCK].tobytes())
        digest.update(json.dumps({key: list(self.words[key]) for key in sorted(self.words)}).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class ArrayCache:
    """The stored arrays in one folder, which only its owner may enter (0700).

    Args:
        folder: Where they lie. It is made when the first arrays are written. Nothing is ever removed.
    """

    folder: Path

    @staticmethod
    def of_user() -> ArrayCache:
        """Return the cache in $RAFFED_CACHE, or in `raffed` in the user's folder for caches."""
        if given := os.environ.get(FOLDER):
            return ArrayCache(Path(given).expanduser())
        if sys.platform == "darwin":
            return ArrayCache(Path.home() / "Library" / "Caches" / "raffed")
        return ArrayCache(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raffed")

    def put(self, stored: StoredArrays) -> str:
        """Write arrays, unless they are there already, and return their SHA-256.

        Arrays that were written under another name or without facts are written again.

        Raises:
            DataFileError: The folder cannot be written, or belongs to another user.
        """
        sha256 = stored.sha256()
        target = self.file_of(sha256)
        about = _about(target) if self.holds(sha256) else {"name": None}
        if about["name"] == stored.name and (not stored.facts or about["facts"] == stored.facts):
            return sha256
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.chmod(0o700)
            _write(target, stored)
        except OSError as error:
            raise DataFileError(
                f"the cache {self.folder} cannot be written ({error.strerror}); set {FOLDER} to "
                f"another folder"
            ) from error
        return sha256

    def holds(self, sha256: str) -> bool:
        """Return whether arrays of this hash are stored."""
        return self.file_of(sha256).is_file()

    def get(self, sha256: str) -> StoredArrays:
        """Return stored arrays, read-only, after checking their hash.

        Raises:
            DataFileError: They are not there, or their file is damaged. The message says how to bring them
                back.
        """
        target = self.file_of(sha256)
        if not target.is_file():
            raise DataFileError(
                f"the arrays {sha256[:12]}… are not in the cache {self.folder}; start the run again from its "
                f"data (the same command writes them there), or point {FOLDER} at the cache that has them"
            )
        about = _about(target)
        try:
            with np.load(target, allow_pickle=False) as file:
                arrays = {str(key): np.asarray(file[key]) for key in file.files if key != ABOUT}
            words = {str(key): tuple(map(str, texts)) for key, texts in about["words"].items()}
            stored = StoredArrays(arrays, words, str(about["name"]), str(about["source"]), about["facts"])
            whole = stored.sha256() == sha256
        except (*_DAMAGED, AttributeError, TypeError) as error:
            raise _damaged(target) from error
        if not whole:
            raise _damaged(target)
        for array in arrays.values():
            array.flags.writeable = False
        return stored

    def file_of(self, sha256: str) -> Path:
        """Return the file of arrays of a hash, whether or not it exists.

        Raises:
            UsageError: The text is not a SHA-256.
        """
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise UsageError(f"{sha256!r} is not a SHA-256 of 64 hexadecimal digits")
        return self.folder / "arrays" / f"{sha256}.npz"


_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def _damaged(file: Path) -> DataFileError:
    return DataFileError(f"{file} is damaged; remove it, and the run's command writes it again")


def _about(file: Path) -> dict[str, Any]:
    """Return what is stored beside the arrays.

    Raises:
        DataFileError: The file is damaged.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            about: dict[str, Any] = json.loads(str(arrays[ABOUT]))
            return {key: about[key] for key in ("name", "source", "words", "facts")}
    except (*_DAMAGED, TypeError) as error:
        raise _damaged(file) from error


def _write(target: Path, stored: StoredArrays) -> None:
    about = {
        "name": stored.name,
        "source": stored.source,
        "words": {key: list(words) for key, words in stored.words.items()},
        "facts": dict(stored.facts),
    }
    arrays: dict[str, Any] = {key: np.ascontiguousarray(array) for key, array in stored.arrays.items()}
    arrays[ABOUT] = np.array(json.dumps(about))
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".new-", delete=False) as file:
        try:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(file.name)

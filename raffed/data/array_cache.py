"""A store of arrays by content: each data set once, under the SHA-256 of its arrays.

An entry is a folder of npy files, without pickles, and one JSON file with the names. It is written under
another name and renamed, so it is complete or does not exist. Reading maps the files into memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raffed.data.cache_place import FOLDER, cache_folder
from raffed.data.stored_arrays import StoredArrays
from raffed.errors import DataFileError, UsageError

ABOUT = "about.json"
CACHED = "cache:"  # a reference to an entry is this and its hash
LIMIT = "RAFFED_CACHE_GB"
DEFAULT_GB = 20.0
_TEMP = ".new-"
_STALE_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class CacheEntry:
    """One entry, for listings.

    Attributes:
        sha256: Its hash, which is the name of its folder.
        name, source: See `StoredArrays`.
        size: Bytes on disk.
        used: When it was last used, in seconds since 1970.
        shapes: Name of the array → its type and shape, as text.
    """

    sha256: str
    name: str
    source: str
    size: int
    used: float
    shapes: Mapping[str, str]


def limit_bytes() -> int:
    """Return the size that the cache may have: $RAFFED_CACHE_GB times 10^9, 20 GB by default.

    Raises:
        UsageError: The variable is not a number above 0.
    """
    text = os.environ.get(LIMIT, str(DEFAULT_GB))
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0 < size < 1e9:
        raise UsageError(f"{LIMIT} = {text!r}; it must be a number of gigabytes above 0")
    return int(size * 1e9)


@dataclass(frozen=True)
class ArrayCache:
    """The store of arrays in one folder, which only its owner may enter (0700).

    Args:
        folder: Where it lies. It is made when the first entry is written.
        limit: Bytes that all entries may have together. The least recently used ones are removed.
    """

    folder: Path
    limit: int

    @staticmethod
    def of_user() -> ArrayCache:
        """Return the cache that the environment names."""
        return ArrayCache(cache_folder(), limit_bytes())

    def put(self, stored: StoredArrays) -> str:
        """Write arrays, unless they are there already, and return their SHA-256.

        Raises:
            DataFileError: The folder cannot be written or belongs to another user, or the arrays are larger
                than the limit.
        """
        sha256 = stored.sha256()
        target = self._entry(sha256)
        with self._writing():
            if not self._is_complete(target):
                size = sum(array.nbytes for array in stored.arrays.values())
                if size > self.limit:
                    raise DataFileError(
                        f"{stored.name or 'the data'} has {size / 1e9:.2f} GB and the cache {self.folder} "
                        f"may have {self.limit / 1e9:.2f} GB; set {LIMIT} to more"
                    )
                self._write(target, stored)
                self._evict(keep=sha256)
            elif stored.facts:
                _renew(target, stored)
            _touch(target)
        return sha256

    def holds(self, sha256: str) -> bool:
        """Return whether there is such an entry."""
        return self._is_complete(self._entry(sha256))

    def get(self, sha256: str) -> StoredArrays:
        """Return the arrays of an entry, mapped into memory and read-only, after checking their hash.

        Raises:
            DataFileError: There is no such entry, or its files are damaged. The message says how to bring it
                back.
        """
        target = self._entry(sha256)
        if not self._is_complete(target):
            raise DataFileError(
                f"the arrays {sha256[:12]}… are not in the cache {self.folder}; start the run again from its "
                f"data (the same command writes them there), or point {FOLDER} at the cache that has them"
            )
        try:
            about = json.loads((target / ABOUT).read_text(encoding="utf-8"))
            arrays = {
                str(key): np.asarray(np.load(target / f"{key}.npy", mmap_mode="r", allow_pickle=False))
                for key in about["arrays"]
            }
            words = {str(key): tuple(map(str, one)) for key, one in about["words"].items()}
            facts = dict(about.get("facts", {}))  # entries of earlier versions have none
            found = StoredArrays(arrays, words, str(about["name"]), str(about["source"]), facts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
            raise DataFileError(f"{target} is damaged ({error}); {_remedy(sha256)}") from error
        if (got := found.sha256()) != sha256:
            raise DataFileError(
                f"{target} is damaged: its arrays have the hash {got[:12]}…; {_remedy(sha256)}"
            )
        _touch(target)
        return found

    def entries(self) -> list[CacheEntry]:
        """Return all entries, the most recently used first."""
        made = []
        for path in self._folders():
            with contextlib.suppress(FileNotFoundError):  # another process may remove an entry at any time
                about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
                arrays = dict(about["arrays"])
                made.append(
                    CacheEntry(path.name, about["name"], about["source"], _size(path), _used(path), arrays)
                )
        return sorted(made, key=lambda one: (-one.used, one.sha256))

    def clear(self, beginning: str = "") -> tuple[int, int]:
        """Remove all entries whose hash begins so, and what killed writers left.

        Args:
            beginning: First letters of the hash; "" for all entries.

        Returns:
            How many entries were removed, and how many bytes they had.
        """
        chosen = [path for path in self._folders() if path.name.startswith(beginning)]
        freed = sum(_size(path) for path in chosen)
        for path in chosen:
            self._remove(path)
        self._sweep(0.0)
        return len(chosen), freed

    def _entry(self, sha256: str) -> Path:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise UsageError(f"{sha256!r} is not a SHA-256 of 64 hexadecimal digits")
        return self.folder / "arrays" / sha256

    def _folders(self) -> list[Path]:
        top = self.folder / "arrays"
        if not top.is_dir():
            return []
        return [path for path in sorted(top.iterdir()) if len(path.name) == 64 and self._is_complete(path)]

    @staticmethod
    def _is_complete(path: Path) -> bool:
        return (path / ABOUT).is_file()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the folder, and turn a failure to write into an error in one line."""
        try:
            (self.folder / "arrays").mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.name == "posix":
                if self.folder.stat().st_uid != os.getuid():
                    raise DataFileError(
                        f"the cache {self.folder} belongs to another user; set {FOLDER} to a folder of "
                        f"your own"
                    )
                self.folder.chmod(0o700)
            self._sweep(_STALE_SECONDS)
            yield
        except OSError as error:
            raise DataFileError(
                f"the cache {self.folder} cannot be written ({error.strerror}); set {FOLDER} to "
                f"another folder"
            ) from error

    def _write(self, target: Path, stored: StoredArrays) -> None:
        temp = Path(tempfile.mkdtemp(prefix=_TEMP, dir=target.parent))
        try:
            for key, array in stored.arrays.items():
                with (temp / f"{key}.npy").open("wb") as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())
            _write_about(temp / ABOUT, stored)
            self._rename(temp, target)
        finally:
            shutil.rmtree(temp, ignore_errors=True)

    def _rename(self, temp: Path, target: Path) -> None:
        """Give an entry its name. Another process may have written the same entry meanwhile."""
        try:
            os.rename(temp, target)
        except OSError:
            if not self._is_complete(target):
                raise

    def _evict(self, keep: str) -> None:
        """Remove the least recently used entries until the rest fits, but never the newest one."""
        found = sorted(self._folders(), key=_used)
        total = sum(_size(path) for path in found)
        for path in found:
            if total <= self.limit:
                return
            if path.name != keep:
                total -= _size(path)
                self._remove(path)

    def _remove(self, path: Path) -> None:
        """Remove an entry. It loses its name first, so that nobody sees a part of it."""
        gone = Path(tempfile.mkdtemp(prefix=_TEMP, dir=path.parent))
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, gone / "entry")
        shutil.rmtree(gone, ignore_errors=True)

    def _sweep(self, age: float) -> None:
        """Remove what killed writers left that long ago."""
        for path in (self.folder / "arrays").glob(f"{_TEMP}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= age:
                    shutil.rmtree(path, ignore_errors=True)


def _write_about(path: Path, stored: StoredArrays) -> None:
    about = {
        "name": stored.name,
        "source": stored.source,
        "arrays": {key: f"{array.dtype} {array.shape}" for key, array in stored.arrays.items()},
        "words": {key: list(words) for key, words in stored.words.items()},
        "facts": dict(stored.facts),
    }
    with path.open("w", encoding="utf-8") as text:
        json.dump(about, text)
        text.flush()
        os.fsync(text.fileno())


def _renew(entry: Path, stored: StoredArrays) -> None:
    """Give an entry the facts with which its arrays are stored again; an earlier version stored none."""
    about = json.loads((entry / ABOUT).read_text(encoding="utf-8"))
    if about.get("facts", {}) == json.loads(json.dumps(stored.facts)):
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=entry, prefix=_TEMP, delete=False) as text:
        json.dump({**about, "facts": stored.facts}, text)
        text.flush()
        os.fsync(text.fileno())
    os.replace(text.name, entry / ABOUT)


def _touch(entry: Path) -> None:
    """Note that an entry was used now. A cache that may not be written is still read."""
    with contextlib.suppress(OSError):
        os.utime(entry / ABOUT)


def _used(entry: Path) -> float:
    """Return when an entry was last used, or 0 if another process has removed it."""
    with contextlib.suppress(FileNotFoundError):
        return (entry / ABOUT).stat().st_mtime
    return 0.0


def _size(entry: Path) -> int:
    """Return the bytes of an entry's files, without those that another process removes meanwhile."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for path in entry.iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
    return total


def _remedy(sha256: str) -> str:
    return f"`raffed cache clear {sha256[:12]}` removes it, and the run's command writes it again"

"""What happens if the folder of a run or of a sweep can no longer be written: one line says how to go on."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from raffed.errors import DiskFullError, FolderLostError, RaffedError, RunFolderError
from raffed.results.files import is_full
from raffed.results.runfile import RUN_FILE, SWEEP_FILE

_OF_A_FOLDER = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
}


class FolderUse(NamedTuple):
    """What writes in a folder: its name, the file that says it has begun, the command that continues it."""

    name: str
    file: str
    again: str


A_RUN = FolderUse("run", RUN_FILE, "raffed resume")
A_SWEEP = FolderUse("sweep", SWEEP_FILE, "raffed tune --resume --out")


class Place:
    """A folder, with the name that it had when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._status = path.absolute(), os.stat(path)

    def check(self) -> None:
        """Raise a FileNotFoundError if another folder, or none, has the name now."""
        if not os.path.samestat(os.stat(self._path), self._status):
            raise FileNotFoundError(errno.ENOENT, "the folder is no longer there", str(self._path))


def of_folder(error: BaseException) -> bool:
    """Return whether an error is about the state of a folder, which `written` reports in one line."""
    return is_full(error) or (isinstance(error, OSError) and error.errno in _OF_A_FOLDER)


@contextlib.contextmanager
def written(path: Path, work: FolderUse = A_RUN) -> Iterator[None]:
    """Wrap code in which a run or a sweep writes in its folder.

    What keeps it from writing becomes one error that says how to go on. The error is not a UsageError,
    because the work has already begun.
    """
    try:
        yield
    except RunFolderError as error:
        if path.is_dir():
            raise
        raise gone(path, work) from error
    except OSError as error:
        if isinstance(error, RaffedError) or not of_folder(error):
            raise
        raise _told(path, error, work) from error


def gone(path: Path, work: FolderUse = A_RUN) -> FolderLostError:
    """Return the error for a folder that is no longer there."""
    return FolderLostError(
        f"{path} was renamed or removed while the {work.name} wrote there; `{work.again} {path}` continues "
        f"the {work.name} once it is there again"
    )


def _told(path: Path, error: OSError, work: FolderUse) -> RaffedError:
    begun = os.path.lexists(path / work.file) or (path.is_dir() and not os.access(path, os.X_OK))
    then = f"`{work.again} {path}` continues the {work.name}" if begun else "repeat the command"
    where = error.filename or path
    if is_full(error):
        where = error.filename or f"{path}, or in the folder for temporary files"
        return DiskFullError(f"there is no space left at {where}; free some space, then {then}")
    if error.errno == errno.ENOENT and not begun:
        return gone(path, work)
    return FolderLostError(f"{where}: {error.strerror}; when that is mended, {then}")

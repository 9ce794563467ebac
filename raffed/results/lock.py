"""The folder in which a run or a sweep writes: its lock, and one line if it can no longer be written.

The lock lets one process at a time write there. It is a lock on a file in the folder, which the system
releases however the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from raffed.errors import (
    DiskFullError,
    FolderInUseError,
    FolderLostError,
    RaffedError,
    RunFolderError,
    writing,
)
from raffed.results.files import check_regular, is_full
from raffed.results.runfile import RUN_FILE, SWEEP_FILE

LOCK_FILE = ".lock"
PATIENCE = 10.0  # seconds; the actors of a killed command live a little longer than it does
POLL = 0.1
WAIT = "wait until it is done or stop it (Ctrl-C or SIGTERM), or choose another folder"
# Errors of file systems without locks, on which no process is kept out
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def this_process() -> str:
    return f"process {os.getpid()} on host {socket.gethostname()}"


def make_folder(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def held(folder: Path, who: str | None = None, patience: float | None = None) -> Iterator[None]:
    """Keep every other process from working in `folder`, which is made if needed.

    On file systems without locks no process is kept out.

    Args:
        folder: The folder.
        who: The process to name to those that are kept out; by default this one.
        patience: How long to wait for the lock, in seconds; by default PATIENCE.

    Raises:
        RunFolderError: The folder cannot be made or written in.
        FolderInUseError: It is still in use after `patience` seconds.
    """
    make_folder(folder)

    def write_name(descriptor: int) -> None:
        # Fails on a full disk; then the message to others names just "another process"
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, (who or this_process()).encode())

    lock = FileLock(folder / LOCK_FILE, fallback_to_soft=False, on_acquired=write_name)
    _take(lock, folder, min(PATIENCE, PATIENCE if patience is None else patience))
    try:
        yield
    finally:
        lock.release()


def check_unused(folder: Path) -> None:
    """Raise a FolderInUseError if another process works in the folder. Nothing is changed there."""
    if os.access(folder / LOCK_FILE, os.W_OK):
        lock = FileLock(folder / LOCK_FILE, fallback_to_soft=False)
        _take(lock, folder, PATIENCE)
        lock.release()


def _take(lock: FileLock, folder: Path, patience: float) -> None:
    """Lock the file in a folder, and wait for it for `patience` seconds. Only a file is accepted there."""
    path = folder / LOCK_FILE
    with writing(folder, "folder"):
        if os.path.lexists(path):
            check_regular(path, path.lstat())
        try:
            lock.acquire(patience, POLL)
        except Timeout as error:
            who = path.read_text(errors="replace") or "another process"
            raise FolderInUseError(f"{folder}: it is in use by {who}; {WAIT}") from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise


# What happens if the folder of a run or of a sweep can no longer be written: one line says how to go on.

_OF_A_FOLDER = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EFBIG),
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

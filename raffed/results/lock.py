"""A lock that lets one process at a time write in a folder.

It is a lock on a file in the folder, which the system releases however the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from raffed.errors import FolderInUseError, writing
from raffed.results.files import check_regular

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
    with writing(folder):
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

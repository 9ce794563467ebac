"""A lock that lets one process at a time write in a folder.

It is a lock on a file in the folder, which the system releases however the process ends. The folder itself is
also locked, because a user can delete the file. On file systems that cannot lock folders (NFS), the lock on
the file decides.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from raffed.errors import FolderInUseError, RunFolderError, advice, writing
from raffed.results.files import check_regular

try:
    import fcntl
except ImportError:  # Windows, where no process is kept out
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
PATIENCE = 10.0  # seconds; the actors of a killed command live a little longer than it does
POLL = 0.1
OTHER = "another process"
WAIT = "wait until it is done or stop it (Ctrl-C or SIGTERM), or choose another folder"


def this_process() -> str:
    return f"process {os.getpid()} on host {socket.gethostname()}"


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be made ({error.strerror}); {advice(error)}") from error


def check_can_be_made(folder: Path) -> None:
    """Refuse a folder that `make_folder` could not make, before anything is loaded for it. Nothing
    is made.
    """
    there = next((one for one in (folder, *folder.absolute().parents) if os.path.lexists(one)), folder)
    if there.exists() and not there.is_dir():
        raise RunFolderError(
            f"{folder}: cannot be made (Not a directory); choose another --out: {there} is a file"
        )
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
        what = "written" if there == folder else f"made in {there}"
        raise RunFolderError(
            f"{folder}: cannot be {what} (Permission denied); {advice(PermissionError(errno.EACCES, ''))}"
        )


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
    until = time.monotonic() + min(PATIENCE, PATIENCE if patience is None else patience)
    with writing(folder):
        file = _lock_file(folder)
    with file, _opened(folder) as itself:
        _take(file.fileno(), file, folder, until)
        _take(itself, file, folder, until)
        # Fails on a full disk; then the message to others names just "another process"
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write((who or this_process()).encode())
        yield


def check_unused(folder: Path) -> None:
    """Raise a FolderInUseError if another process works in the folder. Nothing is changed there."""
    until = time.monotonic() + PATIENCE
    if not folder.is_dir():
        return
    with contextlib.ExitStack() as stack:
        file = None
        if os.access(folder / LOCK_FILE, os.W_OK):
            file = stack.enter_context(_lock_file(folder))
            _take(file.fileno(), file, folder, until)
        _take(stack.enter_context(_opened(folder)), file, folder, until)


def _lock_file(folder: Path) -> IO[bytes]:
    """Open the lock's file for writing. Only a file is accepted: a link would let a stranger choose a file to
    empty, and a named pipe would be waited for.
    """
    if os.path.lexists(folder / LOCK_FILE):
        check_regular(folder / LOCK_FILE, (folder / LOCK_FILE).lstat())
    return open(folder / LOCK_FILE, "ab+", buffering=0, opener=_without_links)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """Yield a handle of the folder, or None where folders cannot be opened (Windows) or not by this user."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY) if fcntl is not None else None
    except OSError:
        handle = None
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _take(handle: int | None, file: IO[bytes] | None, folder: Path, until: float) -> None:
    """Lock an open handle, waiting until the time `until`. `file` says who holds the lock."""
    while fcntl is not None and handle is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise FolderInUseError(f"{folder}: it is in use by {_who(file)}; {WAIT}") from error
            time.sleep(POLL)
        except OSError:
            return  # a file system without locks


def _who(file: IO[bytes] | None) -> str:
    if file is None:
        return OTHER
    file.seek(0)
    return file.read().decode(errors="replace") or OTHER

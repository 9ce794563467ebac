"""One process at a time writes in a folder: a lock on a file there, which the system lets go of however the process ends."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from raffed.core.errors import RunFolderError

try:
    import fcntl
except ImportError:  # Windows, where nobody is kept out
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
PATIENCE = 10.0  # seconds: the actors of a command that was killed outlive it a little
POLL = 0.1


def this_process() -> str:
    return f"process {os.getpid()} on host {socket.gethostname()}"


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be made ({error.strerror}); choose another --out") from error


@contextlib.contextmanager
def held(folder: Path, who: str | None = None) -> Iterator[None]:
    """Keep every other process from working in `folder`, which is made if needed. who: what those are told, this process if None.

    On file systems without locks nobody is kept out.

    Raises:
        RunFolderError: the folder cannot be made or written in, or is in use and still is after PATIENCE seconds.
    """
    make_folder(folder)
    try:
        file = _opened(folder)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be written ({error.strerror}); choose another --out") from error
    with file:
        _take(file, folder)
        with contextlib.suppress(OSError):  # on a full disk; then those kept out are told of another process
            file.truncate(0)
            file.write((who or this_process()).encode())
        yield


def check_unused(folder: Path) -> None:
    """Raise a RunFolderError if another process works in the folder. Nothing is changed there."""
    if os.access(folder / LOCK_FILE, os.W_OK):
        with _opened(folder) as file:
            _take(file, folder)


def _opened(folder: Path) -> IO[bytes]:
    """The lock's file, open for writing. A link would lead a stranger's choice of file to be emptied."""
    if (folder / LOCK_FILE).is_symlink():
        raise RunFolderError(f"{folder / LOCK_FILE}: is a link, wanted a file; remove it")
    return open(folder / LOCK_FILE, "ab+", buffering=0, opener=_without_links)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _take(file: IO[bytes], folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until:
                file.seek(0)
                who = file.read().decode(errors="replace") or "another process"
                advice = "wait until it is done or stop it (Ctrl-C or SIGTERM), or choose another folder"
                raise RunFolderError(f"{folder}: in use by {who}; {advice}") from error
            time.sleep(POLL)
        except OSError:
            return  # a file system without locks

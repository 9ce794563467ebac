"""A folder for sockets, with a short path, that only this user can enter.

The path of a socket may have at most 107 bytes (103 on macOS), whatever TMPDIR says.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import sys
import tempfile
from pathlib import Path

from raffed.errors import UsageError
from raffed.scratch import PREFIX, RANDOM

LONGEST = 103 if sys.platform == "darwin" else 107  # bytes of a socket's path, without the final zero byte
ROOM = 50_000_000  # bytes that must be free for logs and sockets
LITTLE = 1 << 20  # bytes; a place with fewer is full
USUAL = ("/tmp", "/var/tmp")
UNMAPPED = 65534  # owner of the host root's files, seen from a container that does not know that user


class NoFolderError(UsageError):
    """No folder for sockets could be made. The message says for each place why not."""


def private_folder(inside: int, first: str | None = None) -> Path:
    """Make a new folder with mode 0700 in which sockets work, in the first place where that is possible.

    Args:
        inside: Bytes that the longest path of a socket will have after the folder's own, with its "/".
        first: An environment variable that is looked at before TMPDIR, such as "RAY_TMPDIR".

    Raises:
        NoFolderError: It is not possible anywhere.
    """
    refused: list[str] = []
    for place in places(first):
        why = unfit(place, inside)
        if why is None:
            try:
                return _made(place)
            except OSError as error:
                why = error.strerror or str(error)
        refused.append(f"{place}: {why}")
    raise NoFolderError(
        f"there is no folder for sockets ({'; '.join(refused)}); set {first or 'TMPDIR'} to a short path of "
        f"a folder that is "
        "yours and has space"
    )


def places(first: str | None = None) -> list[Path]:
    """Return the places for temporary files, best first: those of the environment, then usual ones."""
    named = [os.environ.get(name, "") for name in (first or "", "TMPDIR")]
    last = [os.environ.get("XDG_RUNTIME_DIR", "")]  # small, and in memory
    return [Path(os.path.abspath(place)) for place in dict.fromkeys([*named, *USUAL, *last]) if place]


def full_place(first: str | None = None, *others: Path) -> Path | None:
    """Return the first place without room among `others` and those for temporary files, or None.

    An error of writing to an open file does not name the file, and Ray's processes name nothing.

    Args:
        first: As of `places`.
        others: Folders that are looked at before.
    """
    for place in (*others, *places(first)):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(place).free < LITTLE:
                return place
    return None


def unfit(place: Path, inside: int) -> str | None:
    """Return why a place cannot be used, or None if it can. Nothing is written there."""
    long = len(os.fsencode(place)) + len(f"/{PREFIX}") + RANDOM + inside
    if long > LONGEST:
        return f"too long, a socket's path would have {long} bytes and may have {LONGEST}"
    try:
        about = place.stat()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(about.st_mode) or not os.access(place, os.W_OK | os.X_OK):
        return "not a folder that can be written"
    if _exchangeable(about):
        return "other users can exchange what lies there"
    return f"less than {ROOM // 1_000_000} MB are free" if free < ROOM else None


def _exchangeable(about: os.stat_result) -> bool:
    """Return whether another user (other than root) can replace a folder of ours in a place."""
    if not hasattr(os, "getuid"):
        return False
    theirs = about.st_uid not in (0, os.getuid(), UNMAPPED)
    return theirs or (
        bool(about.st_mode & (stat.S_IWOTH | stat.S_IWGRP)) and not about.st_mode & stat.S_ISVTX
    )


def _made(place: Path) -> Path:
    """Return a new folder in a place, after a socket was opened in it.

    Raises:
        OSError: That failed, as it does on some network file systems.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    try:
        if hasattr(socket, "AF_UNIX"):
            with socket.socket(socket.AF_UNIX) as trial:
                trial.bind(str(folder / "s"))
            (folder / "s").unlink()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder

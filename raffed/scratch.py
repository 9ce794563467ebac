"""Temporary folders that are removed at the end; those of a killed process by the next command."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "raffed-"
RANDOM = 8  # letters that tempfile.mkdtemp adds to the prefix
HELD = "held"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder for temporary files."""
    remove_left(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as path:
        let_go = hold(Path(path))
        try:
            yield Path(path)
        finally:
            let_go()


def socket_folder() -> Path:
    """Return a new folder of mode 0700 for sockets.

    The path of a socket may have at most 103 to 107 bytes, so TMPDIR, which may be long, does not count.

    Raises:
        OSError: There is no room for it, or RAY_TMPDIR is not a folder that can be written.
    """
    place = os.environ.get("RAY_TMPDIR") or (None if sys.platform == "win32" else "/tmp")
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))


def hold(folder: Path) -> Callable[[], None]:
    """Mark a folder as in use by this process.

    Returns:
        A function that ends it. It also ends with the process.
    """
    mark = (folder / HELD).open("w")
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return mark.close


def remove_left(place: Path) -> None:
    """Remove folders that killed processes of this user have left in a place.

    These are marked folders that no process holds.
    """
    if sys.platform == "win32":
        return
    import fcntl

    for mark in place.glob(f"{PREFIX}{'?' * RANDOM}/{HELD}"):
        with contextlib.suppress(OSError), mark.open("r+") as held:
            if os.fstat(held.fileno()).st_uid == os.getuid():
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error while the folder is in use
                shutil.rmtree(mark.parent, ignore_errors=True)

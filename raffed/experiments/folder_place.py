"""What happens if the folder of a run or of a sweep changes while something writes there.

The disk may become full, the folder may be renamed or removed, or the permission may be taken away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from raffed.errors import DiskFullError, FolderLostError, RaffedError, RunFolderError
from raffed.results.atomic import is_full
from raffed.results.runfile import RUN_FILE, read_run, write_json
from raffed.results.sweep_file import SWEEP_FILE

SETTLE = 0.5  # seconds that a process which removes a folder may take to finish
CLOSED = {
    errno.EACCES: "give yourself the permission again (chmod, chown)",
    errno.EPERM: "give yourself the permission again (chmod, chown)",
    errno.EROFS: "mount its file system for writing again",
    errno.EIO: "the disk or the file server is at fault: mend it",
    errno.ESTALE: "the file server is at fault: mend it",
    errno.ENOENT: "something in it was removed or renamed: put it back",
    errno.ENOTDIR: "something in it was replaced: put it back",
    errno.EISDIR: "something in it was replaced: put it back",
}


class FolderUse(NamedTuple):
    """What writes in a folder: its name, the file that says it has begun, the command that continues it."""

    name: str
    file: str
    again: str

    def continued(self, path: Path | str) -> str:
        """Return how the work in a folder is continued, as a clause."""
        return f"`{self.again} {path}` continues the {self.name}"


A_RUN = FolderUse("run", RUN_FILE, "raffed resume")
A_SWEEP = FolderUse("sweep", SWEEP_FILE, "raffed tune --resume --out")


class Place:
    """A folder, with the name that it had when it was opened.

    A handle on it shows whether the folder is still there, and what it is called now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        status = os.stat(path)
        self._key = status.st_dev, status.st_ino

    def here(self) -> bool:
        """Return whether the folder still has its name."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._key

    def check(self) -> None:
        """Raise a FileNotFoundError unless `here`. Another folder of the same name must not be written in."""
        if not self.here():
            raise FileNotFoundError(errno.ENOENT, "the folder is no longer there", str(self.path))


class Kept(Place):
    """A place whose handle stays open, so that its new name can be found out (Linux)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._handle = os.open(path, os.O_RDONLY) if os.name == "posix" else -1

    def removed(self) -> bool:
        """Return whether the folder is known to be removed, so that it has no name any more."""
        return self._handle >= 0 and os.fstat(self._handle).st_nlink == 0

    def now(self) -> Path | None:
        """Return where the folder is now; None if it was removed, or if the system does not say."""
        try:
            found = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
            return (
                found if found.is_dir() and os.path.samestat(found.stat(), os.fstat(self._handle)) else None
            )
        except OSError:
            return None

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)


def of_folder(error: BaseException) -> bool:
    """Return whether an error is about the folder's state.

    `written` reports that state in one line, so a second error of this kind adds nothing.
    """
    return is_full(error) or (isinstance(error, OSError) and error.errno in CLOSED)


@contextlib.contextmanager
def written(path: Path, work: FolderUse = A_RUN) -> Iterator[None]:
    """Wrap code in which a run or a sweep writes in its folder.

    What keeps it from writing becomes one error that says what to do. The error is not a UsageError, because
    the work has already begun.
    """
    try:
        kept = Kept(path)
    except OSError as error:
        raise gone_somehow(path, work) from error
    with contextlib.closing(kept) as place:
        try:
            yield
        except (RaffedError, OSError) as error:
            if isinstance(error, RaffedError) and not isinstance(error, RunFolderError):
                raise
            if isinstance(error, OSError) and error.errno == errno.ENOENT:
                time.sleep(SETTLE)
            if not place.here():
                raise _lost(place, work) from error
            if isinstance(error, OSError):
                _told(path, error, work)
            raise


def gone_somehow(path: Path, work: FolderUse = A_RUN) -> FolderLostError:
    """Return the error for a folder that is gone, if nobody knows whether it was renamed or removed."""
    return FolderLostError(
        f"{path} was renamed or removed while the {work.name} wrote there; if it has another name now, "
        f"{work.continued('NAME')}, otherwise start it again"
    )


def _lost(place: Kept, work: FolderUse) -> FolderLostError:
    path, now = place.path, place.now()
    if now is None and not place.removed():
        return gone_somehow(path, work)
    if now is None:
        return FolderLostError(
            f"{path} was removed while the {work.name} wrote there, and its files with it; start it again"
        )
    what = f"{path} was renamed to {now} while the {work.name} wrote there"
    with contextlib.suppress(OSError, RunFolderError):
        about = read_run(now)
        if about.get("state") == "running":
            write_json(now / RUN_FILE, {**about, "state": "failed", "error": what})
    return FolderLostError(f"{what}; {work.continued(now)}")


def _told(path: Path, error: OSError, work: FolderUse) -> None:
    """Raise the error that a user sees for a file-system error of the folder; return for any other error."""
    then = work.continued(path) if _begun(path, work) else "repeat the command"
    if is_full(error):
        where = error.filename or f"{path}, or in the folder for temporary files"
        raise DiskFullError(f"there is no space left at {where}; free some space, then {then}") from error
    if error.errno in CLOSED:
        what = f"{error.filename or path}: {os.strerror(error.errno)}"
        raise FolderLostError(
            f"{what}, so the {work.name} cannot go on writing there; {CLOSED[error.errno]}, then {then}"
        ) from error


def _begun(path: Path, work: FolderUse) -> bool:
    try:
        return (path / work.file).exists()
    except OSError:  # even the names in it may be unreadable
        return True

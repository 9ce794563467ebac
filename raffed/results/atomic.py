"""Write files so that they are complete or do not exist.

A file gets a temporary name, is flushed with fsync and renamed; then its folder is flushed.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raffed.errors import RunFolderError

_TEMP = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Return whether an error means that no space or no quota is left."""
    if isinstance(error, shutil.Error):  # of copytree, which only keeps the texts of the errors
        return any(os.strerror(code) in str(error) for code in _FULL)
    return isinstance(error, OSError) and error.errno in _FULL


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` in one step when the block succeeds.

    If the block raises, `path` is unchanged and the temporary file is deleted. If the process is killed,
    `path` is unchanged and a hidden file `.NAME.tmp` remains, which `clean` removes. There may be one writer
    per path. If `path` or the temporary name is a link, the link is replaced, and the file it points to is
    not touched.
    """
    temp = path.with_name(f".{path.name}{_TEMP}")
    create(temp)
    try:
        yield temp
        sync_file(temp)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create(path: Path) -> None:
    """Make an empty file that belongs to this process, in place of any file or link of that name.

    Programs open a file by its name to write to it, and would follow a link that a stranger left there. After
    this call the name belongs to a new file.

    Raises:
        RunFolderError: The name is that of a folder.
    """
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError) as error:  # macOS raises PermissionError for a folder
        if not path.is_dir():
            raise
        raise RunFolderError(f"{path}: is a folder, but must be a file; remove it") from error
    path.open("xb").close()


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, in one step."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")


def sync_file(path: Path) -> None:
    """Make sure that what was written to a file survives a loss of power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Make sure that a folder and everything below it survive a loss of power.

    Linux's sync(2) waits until everything is written and took 0.2 ms per file (1,000 client states of 250 kB
    on one disk). fsync of each single file took 5 ms.
    """
    if platform.system() == "Linux":
        os.sync()
        return
    for path in sorted(folder.rglob("*")):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make sure that renames and deletions in a folder survive a loss of power.

    On systems other than POSIX nothing is done, because they cannot open a folder.
    """
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean(folder: Path, pattern: str) -> None:
    """Remove the temporary files that a killed writer left, of names that match the glob `pattern`."""
    for temp in folder.glob(f".{pattern}{_TEMP}"):
        temp.unlink(missing_ok=True)

"""A file is there completely or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raffed.errors import RunFolderError

_TEMP = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether an error says that no space or no quota is left."""
    return isinstance(error, OSError) and error.errno in _FULL


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; when the block ends well, it takes the place of `path` in one step.

    A block that raises leaves `path` as it was and no temporary file. A process killed inside leaves `path`
    as it was and one hidden file `.NAME.tmp`, which `clean` removes. One writer per path. Where `path` or the
    temporary name is a link, the link is replaced and what it leads to is left alone.
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
    """Make an empty file of this process's own, in place of whatever file or link had the name.

    Programs open a file by its name to write it and would follow a link that a stranger left there. Once this
    returns, the name belongs to a new file.

    Raises:
        RunFolderError: the name is that of a folder.
    """
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError) as error:  # the second is what macOS says of a folder
        if not path.is_dir():
            raise
        raise RunFolderError(f"{path}: is a folder, and a file of that name is wanted; remove it") from error
    path.open("xb").close()


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, in one step."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")


def sync_file(path: Path) -> None:
    """Make what was written to a file survive a loss of power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """The same for every file and folder below `folder`, and itself.

    Linux's sync(2) waits until all is written and takes 0.2 ms a file (1,000 vaults of 250 kB, one disk);
    fsync, file by file, took 5 ms.
    """
    if platform.system() == "Linux":
        os.sync()
        return
    for path in sorted(folder.rglob("*")):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in `folder` survive a loss of power (POSIX; elsewhere the system
    decides).
    """
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean(folder: Path, pattern: str) -> None:
    """Remove what a killed writer left: the temporary files of names that match the glob `pattern`."""
    for temp in folder.glob(f".{pattern}{_TEMP}"):
        temp.unlink(missing_ok=True)

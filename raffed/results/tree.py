"""The folder of a stranger: what lies in it are files and folders of its own, and nothing leads out of it.

raffed writes, renames and removes files all over a run's folder, by its actors as well. So a folder is looked
through once, before a command works in it: a link to a place outside of it, or a named pipe, for which a
reader would wait for ever, is refused there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from raffed.errors import RunFolderError
from raffed.results.json_files import check_inside

FILES = ("run.json", "partition.npz", "final.safetensors")  # of a run
FOLDERS = ("metrics", "checkpoints", "vaults")
KINDS: Mapping[int, str] = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_run_tree(folder: Path) -> None:
    """As `check_tree`; and what has the name of a run's file is a file, of a run's folder a folder."""
    check_tree(folder)
    for name in FILES:
        if (folder / name).is_dir():
            raise RunFolderError(f"{folder / name}: is a folder, wanted a file; put back the run's own")
        if (folder / name).is_symlink() and not (folder / name).exists():
            raise RunFolderError(f"{folder / name}: a link to nothing; put back the run's own")
    for name in FOLDERS:
        if (folder / name).is_file():
            raise RunFolderError(f"{folder / name}: is a file, wanted a folder; put back the run's own")


def check_tree(folder: Path) -> None:
    """Raise a RunFolderError unless everything below a folder is a file, a folder, or a link to one of these
    below it.

    `folder` itself may be a link: whoever names it on the command line has chosen it. One that does not
    exist is fine.
    """
    try:
        for entry in _entries(folder):
            path = Path(entry.path)
            if entry.is_symlink():
                check_inside(folder, path)
            elif not entry.is_dir(follow_symlinks=False):
                check_regular(path, entry.stat(follow_symlinks=False))
    except OSError as error:
        raise RunFolderError(
            f"{error.filename or folder}: cannot be read ({error.strerror}); its owner can allow it"
        ) from error


def check_regular(path: Path, about: os.stat_result) -> None:
    """Raise a RunFolderError unless `about` describes a file with contents of its own."""
    if not stat.S_ISREG(about.st_mode):
        what = "a folder" if stat.S_ISDIR(about.st_mode) else KINDS.get(stat.S_IFMT(about.st_mode), "no file")
        raise RunFolderError(f"{path}: is {what}, wanted a file; remove it")


def read_regular(path: Path) -> bytes:
    """The bytes of a file. A named pipe, for which a reader would wait, is a RunFolderError."""
    check_regular(path, path.stat())
    return path.read_bytes()


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of the bytes of a file; an OSError or RunFolderError where there is none."""
    return hashlib.sha256(read_regular(path)).hexdigest()


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder; links are not followed."""
    left = [str(folder)] if folder.is_dir() else []
    while left:
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(left.pop()) as found,
        ):  # another command may be at work here
            for entry in found:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)

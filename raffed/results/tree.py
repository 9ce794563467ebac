"""Check a folder that may come from a stranger: it must hold files and folders only, and nothing may lead out
of it.

raffed and its actors write, rename and remove files all over a run's folder. So the folder is checked once,
before a command works in it. A link to a place outside is refused, and so is a named pipe, for which a reader
would wait for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from raffed.errors import RunFolderError
from raffed.own.gate import check_inside
from raffed.results.json_files import KINDS

FILES = ("run.json", "partition.npz", "final.safetensors", "best.safetensors")  # the names of a run's files
FOLDERS = ("metrics", "checkpoints", "vaults", "code")


def check_run_tree(folder: Path) -> None:
    """Apply `check_tree`, and check that each name of a run's file is a file, and of a run's folder a
    folder.
    """
    check_tree(folder)
    for name in FILES:
        if (folder / name).is_dir():
            raise RunFolderError(f"{folder / name}: is a folder, but must be a file; put back the run's own")
        if (folder / name).is_symlink() and not (folder / name).exists():
            raise RunFolderError(
                f"{folder / name}: is a link to a file that does not exist; put back the run's own"
            )
    for name in FOLDERS:
        if (folder / name).is_file():
            raise RunFolderError(f"{folder / name}: is a file, but must be a folder; put back the run's own")


def check_tree(folder: Path) -> None:
    """Raise a RunFolderError unless everything below a folder is a file, a folder, or a link to one of these
    below it.

    `folder` itself may be a link, because the user has chosen it on the command line. It need not exist.
    """
    try:
        for entry in _entries(folder):
            with contextlib.suppress(FileNotFoundError):  # a command at work here may have removed it
                _check_entry(folder, entry)
    except OSError as error:
        raise RunFolderError(
            f"{error.filename or folder}: cannot be read ({error.strerror}); its owner can allow it"
        ) from error


def _check_entry(folder: Path, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        check_inside(folder, Path(entry.path))
    elif not entry.is_dir(follow_symlinks=False):
        check_regular(Path(entry.path), entry.stat(follow_symlinks=False))


def check_regular(path: Path, about: os.stat_result) -> None:
    """Raise a RunFolderError unless `about` describes a file with contents of its own."""
    if not stat.S_ISREG(about.st_mode):
        what = KINDS.get(stat.S_IFMT(about.st_mode), "a device")
        raise RunFolderError(f"{path}: is {what}, but must be a file; remove it")


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file. A named pipe, for which a reader would wait, is a RunFolderError."""
    check_regular(path, path.stat())
    return path.read_bytes()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of the bytes of a file.

    Raises:
        OSError, RunFolderError: The file does not exist or cannot be read.
    """
    return hashlib.sha256(read_regular(path)).hexdigest()


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder. Links are not followed."""
    left = [str(folder)] if folder.is_dir() else []
    while left:
        # Another command may be working here
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(left.pop()) as found,
        ):
            for entry in found:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)

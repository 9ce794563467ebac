"""The rules that keep a file from being sent with a job: its name, its kind, its folder, or its contents."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from raffed.runtime.secret_files import SNIFFED, hidden_or_secret_name, secret_contents

DATA = "data or results: they lie on the shared storage"
_AT_THE_TOP = {"data", "datasets", "shared", "runs", "sweeps", "reproduce", "report", "bench", "demo"}
_CACHES = {"__pycache__", "node_modules", "build", "dist", "site-packages", "htmlcov"}
_RESULTS = {
    "checkpoints",
    "vaults",
    "wandb",
    "mlruns",
    "mlartifacts",
    "tensorboard",
    "lightning_logs",
    "ray_results",
}
_MARKS = {  # a file whose presence shows what its folder is
    "pyvenv.cfg": "a virtual environment",
    "conda-meta": "a virtual environment",
    "CACHEDIR.TAG": "a cache",
    "run.json": DATA,
    "sweep.json": DATA,
    "item.json": DATA,
    "checkpoint.json": DATA,
}
_DATA = (
    ".parquet",
    ".safetensors",
    ".npz",
    ".npy",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".hdf5",
    ".pkl",
    ".pickle",
    ".onnx",
    ".arrow",
    ".feather",
    ".lmdb",
    ".mdb",
    ".db",
    ".sqlite",
    ".sqlite3",
    ".gz",
    ".tgz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
    ".tar",
    ".7z",
    ".rar",
    ".pyc",
    ".pyo",
    ".core",
    ".dump",
)


def no_file(entry: os.DirEntry[str]) -> str:
    """Return why an entry that is not a folder is not sent.

    Only files are opened, because a pipe would wait for ever.
    """
    return "" if entry.is_symlink() or entry.is_file(follow_symlinks=False) else "no regular file"


def reason_against(path: str, source: Path, is_folder: bool, ignored: list[Ignored]) -> str:
    """Return why a path is not sent: because of its name, its kind, or its contents."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    name = path.rpartition("/")[2]
    found = _by_name(name, is_folder, "/" not in path) or (_by_mark(source) if is_folder else "")
    for one in ignored:
        below = path[len(one.folder) :] + ("/" if is_folder else "")
        found = found or (f"named in {one.folder}{one.file}" if one.names(below) else "")
    return found or ("" if is_folder or source.is_symlink() else contents_against(source, name))


class Ignored(NamedTuple):
    """An ignore file in the folder called `folder`, and whether it excludes a path below that."""

    folder: str
    file: str
    names: Callable[[str], bool]


def _by_name(name: str, is_folder: bool, at_the_top: bool) -> str:
    plain = name.casefold()
    secret = hidden_or_secret_name(name, is_folder)
    if is_folder:
        if (
            plain in _CACHES
            or plain.endswith((".egg-info", "_cache"))
            or plain in {".cache", ".hypothesis", ".tox", ".nox"}
        ):
            return "a cache, made again where it is needed"
        if plain in {".venv", "venv", ".virtualenv"}:
            return "a virtual environment"
        return secret or (DATA if plain in _RESULTS or (at_the_top and plain in _AT_THE_TOP) else "")
    return secret or (DATA if plain.endswith(_DATA) else "")


def _by_mark(folder: Path) -> str:
    return next((reason for mark, reason in _MARKS.items() if os.path.lexists(folder / mark)), "")


def contents_against(path: Path, name: str) -> str:
    try:
        with open(path, "rb") as file:
            return secret_contents(file.read(SNIFFED), name)
    except OSError as error:
        return f"cannot be read ({error.strerror})"

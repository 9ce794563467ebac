"""Find the folders of runs, and those that hold a run's files but not its run.json."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_OF_A_RUN = frozenset(
    {
        *("metrics", "checkpoints", "vaults", "code"),
        *("run.json", "partition.npz", "final.safetensors", "best.safetensors", ".lock"),
    }
)
_CHECKPOINT = re.compile(r"round-\d{6,9}")


def find_run_folders(path: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the folders with a run.json, and those that should have one, with the reason."""
    found, headless = [], {}
    for folder, below, names in os.walk(path):
        below.sort()
        if "run.json" in names:
            below.clear()
            found.append(Path(folder))
        elif why := _headless(Path(folder), below, names):
            below[:] = [name for name in below if name not in _OF_A_RUN]
            headless[str(Path(folder))] = why
    return found, headless


def folder_names(folders: list[Path]) -> dict[str, Path]:
    """Return folder names if they are unique, else paths below the common folder."""
    if len({folder.resolve().name for folder in folders}) == len(folders):
        return {folder.resolve().name: folder for folder in folders}
    base = os.path.commonpath([folder.resolve() for folder in folders])
    return {folder.resolve().relative_to(base).as_posix(): folder for folder in folders}


def _headless(folder: Path, below: Sequence[str], names: Sequence[str]) -> str:
    """Return why a folder is no run although it looks like one; "" if it does not look like one.

    Args:
        folder: the folder, which holds no file run.json.
        below: the names of the folders in it.
        names: the names of its files.
    """
    if "run.json" in below:
        return "run.json is a folder, but must be a file; put back a copy of it"
    if any(_is_part(name) for name in names):
        if (folder.parent / "run.json").is_file():
            return f"it holds the rows of a run, but is not its folder; give {folder.parent}"
        return _lacking("rows of a run")
    if "metrics" in below and any(_is_part(path.name) for path in _inside(folder / "metrics")):
        return _lacking("metrics with rows of a run")
    if "checkpoints" in below and any(
        _CHECKPOINT.fullmatch(path.name) for path in _inside(folder / "checkpoints")
    ):
        return _lacking("checkpoints of a run")
    begun = sorted({"metrics", "checkpoints"} & set(below))
    if begun and {*below, *names} <= _OF_A_RUN and not any(_inside(folder / name) for name in begun):
        return _lacking(f"{' and '.join(begun)}, empty,")
    return ""


def _lacking(what: str) -> str:
    return f"it has {what} but no run.json; put back a copy of it"


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet")


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

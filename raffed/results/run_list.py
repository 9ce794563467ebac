"""What a folder of runs holds: one line about each run, for listings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from raffed.errors import RaffedError, RunFolderError
from raffed.results.metrics import TEST_ACCURACY
from raffed.results.rows import common_values
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.writer import read_metrics

DEEPEST = 6


@dataclass(frozen=True)
class RunLine:
    """One run in a listing.

    Attributes:
        path: Its folder, relative to the folder that was listed.
        method, data, split: As configured.
        seed: Seed of the run; None if run.json cannot be read.
        state: running, stopped, failed or finished; "unreadable" if run.json is damaged.
        done, rounds: How many rounds are done, of how many.
        accuracy: Last accuracy of the global model on the test set; None before the first evaluation.
        note: Why something is missing; "" if all was read.
    """

    path: str
    method: str = ""
    data: str = ""
    split: str = ""
    seed: int | None = None
    state: str = "unreadable"
    done: int = 0
    rounds: int = 0
    accuracy: float | None = None
    note: str = ""


def run_lines(folder: Path) -> Iterator[RunLine]:
    """Yield a line for every run at or below a folder, in the order of their paths.

    Args:
        folder: A folder of runs; runs may lie up to six folders deep.

    Raises:
        RunFolderError: The folder does not exist or cannot be read.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: there is no such folder; give one that holds runs, such as runs/")
    for path in run_folders(folder):
        yield _line(path, folder)


def run_folders(folder: Path) -> list[Path]:
    """Return the folders with a run.json. The inside of a run is left out, and links are not followed."""
    folders = []
    for where, below, files in os.walk(folder):
        if RUN_FILE in files:
            below.clear()
            folders.append(Path(where))
        elif len(Path(where).relative_to(folder).parts) >= DEEPEST:
            below.clear()
    return sorted(folders)


def _line(path: Path, top: Path) -> RunLine:
    shown = "." if path == top else path.relative_to(top).as_posix()
    try:
        about = read_run(path)
    except RaffedError as error:
        return RunLine(shown, note=_reason(error, path))
    config = about["config"]
    line = RunLine(
        shown,
        str(config.get("method", "")),
        str(config.get("data", {}).get("dataset", "")),
        str(config.get("data", {}).get("split", "")),
        int(config.get("seed", 0)),
        str(about["state"]),
        int(about["rounds_done"]),
        int(config.get("federation", {}).get("rounds", 0)),
    )
    try:
        values = common_values(read_metrics(path), TEST_ACCURACY)
    except RaffedError as error:
        return replace(line, note=_reason(error, path))
    return replace(line, accuracy=values[-1][1] if values else None)


def _reason(error: RaffedError, path: Path) -> str:
    return str(error).splitlines()[0].removeprefix(f"{path}/").removeprefix(f"{path}: ")

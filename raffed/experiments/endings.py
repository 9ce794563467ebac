"""Write into run.json that a run was ended from outside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from raffed.errors import RayLostError, RunFolderError
from raffed.results.lock import alone, held
from raffed.results.runfile import RUN_FILE, read_run, write_json
from raffed.runtime.ray_backend.endings import lost, own

PRUNED = "pruned: the search ended this trial early"
LAST_WORD = 2.0  # seconds in which a driver that was ended releases the folder


def mark_interrupted(path: Path, why: str | None = None, *, mine: bool = False) -> None:
    """Record in run.json that a run was ended from outside, if its driver can no longer do so.

    Nothing is written if another command holds the folder. `mine` says that this process is known to hold it,
    if any does.
    """
    if not (path / RUN_FILE).exists():
        return
    with contextlib.suppress(RunFolderError, OSError), (alone if mine else held)(path, patience=LAST_WORD):
        about = read_run(path)
        if about.get("state") == "running":
            write_json(path / RUN_FILE, {**about, "state": "stopped", "error": why or "interrupted"})


def mark_pruned(path: Path) -> None:
    """Record in run.json that a search ended a run on purpose. What interrupted its process is not an error.

    Nothing is written if another command holds the folder, or if the run came to its end.
    """
    if not (path / RUN_FILE).exists():
        return
    with contextlib.suppress(RunFolderError, OSError), held(path, patience=LAST_WORD):
        about = read_run(path)
        if about.get("state") != "finished":
            write_json(path / RUN_FILE, {**about, "state": "stopped", "error": PRUNED})


def end_early(path: Path, asked: bool) -> None:
    """Record that a run was asked to stop, or that it has lost its Ray.

    The loss of Ray is raised as an error, unless the run was finished anyway.
    """
    if (what := lost()) is not None:
        own.end_all()  # after this, no process writes in the folder
    mark_interrupted(path, what and f"{what} died")
    if what is not None and not asked and read_run(path).get("state") != "finished":
        raise RayLostError(f"{what} died, and the run with it; `raffed resume {path}` continues it")

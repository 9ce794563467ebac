"""Write into run.json that a run was ended from outside."""

from __future__ import annotations

import contextlib
from pathlib import Path

from raffed.errors import RunFolderError
from raffed.results.lock import held
from raffed.results.runfile import RUN_FILE, read_run, write_json

PRUNED = "pruned: the search ended this trial early"
LAST_WORD = 5.0  # seconds in which a driver that was ended releases the folder


def mark_interrupted(path: Path) -> None:
    """Record in run.json that a run was ended from outside, if its driver can no longer do so.

    Nothing is written if another command holds the folder.
    """
    if not (path / RUN_FILE).exists():
        return
    with contextlib.suppress(RunFolderError, OSError), held(path, patience=LAST_WORD):
        about = read_run(path)
        if about.get("state") == "running":
            write_json(path / RUN_FILE, {**about, "state": "stopped", "error": "interrupted"})


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

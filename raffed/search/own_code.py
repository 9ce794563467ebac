"""The user's own code of a sweep that goes on must be that of the runs that have begun. Does not use Ray."""

from __future__ import annotations

from pathlib import Path

from raffed.errors import RunFolderError
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.sweep_file import FINALS, TRIALS
from raffed.runs.code_record import check_code
from raffed.runs.folder import run_config


def check_trials(out: Path, accept: bool) -> None:
    """Apply `check_code` to every run of a sweep that has begun, before the sweep goes on.

    Args:
        out: The sweep's folder.
        accept: Whether changed code is taken.

    Raises:
        RunFolderError: As in `check_code`.
    """
    begun = (one.parent for kind in (TRIALS, FINALS) for one in out.glob(f"*/{kind}/*/{RUN_FILE}"))
    for folder in sorted(begun):
        try:
            about, config = read_run(folder), run_config(folder)
        except RunFolderError:
            continue  # a damaged run is put aside by the sweep, and run again
        check_code(folder, about, config, accept)

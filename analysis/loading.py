"""Load runs for an analysis in Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from raffed.results.storage import named as known
from raffed.results.storage import unpacked

from .runs.load import NoRunsError, Runs, read_runs, reasons
from .sweeps import find_sweeps, trials_of


def load_runs(paths: Path | str | Iterable[Path | str], *, trials: bool = False) -> Runs:
    """Read every run at or below the given paths, whether it is finished, still running, or was killed.

    Args:
        paths: Run folders, folders that hold some or that hold packed records, or one such
            path. A folder that is found twice counts once.
        trials: Whether the trials of sweeps are included. They served to choose a setting and are not
            results; the final runs of the chosen setting are. Where the paths hold trials alone, they are
            always included.

    Returns:
        The runs that could be read. `Runs.unreadable` names what could not be.

    Raises:
        NoRunsError: no run at or below the paths can be read. The message gives the reason for each path.
    """
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    with unpacked(map(Path, given)) as places:
        runs = read_runs(places)
        if not trials:
            runs = runs.without(trials_of(runs, find_sweeps(places)))
        runs.runs["folder"] = [known(folder) for folder in runs.runs["folder"]]
    if given and runs.runs.empty:
        raise NoRunsError(f"no run to load ({reasons(runs)})")
    return runs

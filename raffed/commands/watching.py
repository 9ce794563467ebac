"""Do something again whenever the files of runs, sweeps or reproductions change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

READ = frozenset({"run.json", "sweep.json", "item.json", "study.json"})  # and the parts of metrics
LEFT_OUT = frozenset({"checkpoints", "vaults"})  # folders of which no report reads anything

Snapshot = frozenset[tuple[str, int, int]]


def snapshot(places: Iterable[Path]) -> Snapshot:
    """Return name, size and time of change of every file at or below `places` that a report reads."""
    found = set()
    for place in places:
        for folder, below, names in os.walk(place):
            below[:] = [name for name in below if name not in LEFT_OUT]
            for name in names:
                if name in READ or (name.endswith(".parquet") and not name.startswith(".")):
                    found.update(_known(Path(folder) / name))
    return frozenset(found)


def _known(path: Path) -> list[tuple[str, int, int]]:
    try:
        about = path.stat()
    except OSError:  # it was replaced or merged meanwhile
        return []
    return [(str(path), about.st_size, about.st_mtime_ns)]


def repeat(
    write: Callable[[], None],
    look: Callable[[], Snapshot],
    wait: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    """Write at once, and again after every change, until it is stopped.

    Args:
        write: What is done. A file that changes meanwhile is seen at the next look.
        look: Returns what the files are like.
        wait: Waits between two looks.
        stopped: Whether to end. It is asked before every look.
    """
    before: Snapshot | None = None
    while not stopped():
        now = look()
        if now != before:
            write()
            before = now
        wait()


__all__ = ["Snapshot", "repeat", "snapshot"]

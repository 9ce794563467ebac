"""Packed records as folders of runs, for reports.

What unpacks them stands beside raffed, and is found by the entry point `raffed.records`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from raffed.results.packed_records import RECORDS_FILE
from raffed.results.storage import known_as
from raffed.scratch import scratch_folder


class DamagedRecordsError(ValueError):
    """Packed records cannot be read, or are no longer what was packed. The message is one line."""


@contextmanager
def unpacked(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield paths that hold run folders, for paths that may hold packed records.

    Packed records at or below a path are unpacked into temporary folders. `raffed.results.storage.named`
    gives the packed folder's name in place of the temporary one.

    Raises:
        DamagedRecordsError: Packed records cannot be read.
    """
    found: list[Path] = []
    with scratch_folder() as scratch, known_as() as know:
        for number, path in enumerate(paths):
            packed = packed_below(path)
            found += [] if path in packed else [path]
            for folder in packed:
                local = scratch / str(number) / folder.relative_to(path) / folder.name
                _unpack(folder, local)
                know(local, str(folder))
                found.append(local)
        yield found


def packed_below(path: Path) -> list[Path]:
    """Return the folders with packed records at or below a path."""
    return sorted(Path(place) for place, _, names in os.walk(path) if RECORDS_FILE in names)


def _unpack(folder: Path, out: Path) -> None:
    entries = entry_points(group="raffed.records")
    if not entries:  # an environment from before the reader moved
        raise DamagedRecordsError(f"{folder}: nothing reads packed records; install raffed anew (make venv)")
    for entry in entries:
        entry.load()(folder, out)

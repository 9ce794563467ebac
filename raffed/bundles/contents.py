"""What belongs to a run, a sweep or a reproduced table: its record and the folders of its runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raffed.config.validation import Json, table_of
from raffed.errors import RunFolderError, UsageError
from raffed.own.gate import within
from raffed.results.folder_names import folder_name
from raffed.results.runfile import RUN_FILE, read_object, read_run
from raffed.results.sweep_file import FINALS, SWEEP_FILE, TRIALS, read_sweep
from raffed.tables.planner import ITEM_FILE

HIGHEST = 4  # folders above an item's own one in which its runs may lie


@dataclass(frozen=True)
class Contents:
    """What goes into a bundle.

    Attributes:
        kind: "run", "sweep" or "item".
        top: The folder to which all names are relative.
        runs: Names of the folders of runs below it, each with a run.json.
        record: Name of the sweep.json or item.json below it; "" for a run.
        about: What that file holds.
        notes: What is left out, and why.
    """

    kind: str
    top: Path
    runs: tuple[str, ...]
    record: str
    about: dict[str, Json]
    notes: tuple[str, ...] = ()


def contents_of(place: Path) -> Contents:
    """Return what belongs to the run, sweep or item in a folder, or to the item of an item.json.

    Raises:
        UsageError: There is none of them, or its runs lie elsewhere.
    """
    folder = place.parent if place.name == ITEM_FILE and place.is_file() else place
    if (folder / SWEEP_FILE).exists():
        return _sweep(folder)
    if (folder / ITEM_FILE).exists():
        return _item(folder)
    read_run(folder)
    return Contents("run", folder, (".",), "", {})


def _sweep(folder: Path) -> Contents:
    about = read_sweep(folder)
    names = []
    for method, record in about["methods"].items():
        own = folder_name(method)
        names += [f"{own}/{TRIALS}/{trial['name']}" for trial in record.get("trials") or []]
        names += [f"{own}/{FINALS}/seed-{one['seed']}" for one in record.get("final") or []]
    return _below(folder, "sweep", names, SWEEP_FILE, read_object(folder, SWEEP_FILE))


def _item(folder: Path) -> Contents:
    about = read_object(folder, ITEM_FILE)
    named = sorted({str(within(folder.absolute(), one, HIGHEST)) for one in _runs_of(about) if one})
    if not named:
        raise UsageError(f"{folder / ITEM_FILE}: no run of it is finished, so there is nothing to bundle")
    top = Path(os.path.commonpath([folder.absolute(), *named]))
    if len(folder.absolute().relative_to(top).parts) > HIGHEST:
        raise UsageError(
            f"{folder / ITEM_FILE}: its runs lie in {top}, far from it; bundle a table as "
            "`raffed reproduce` left it"
        )
    record = (folder.absolute() / ITEM_FILE).relative_to(top).as_posix()
    names = [Path(one).relative_to(top).as_posix() for one in named]
    found = _below(top, "item", names, record, about)
    if about.get("studies"):
        return Contents(
            "item", top, found.runs, record, about, (*found.notes, "the study, which replay cannot execute")
        )
    return found


def _runs_of(about: dict[str, Json]) -> Iterator[str]:
    """Yield the folders of runs that an item.json names: behind its cells, and of its search."""
    cells = about.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        runs = table_of(cell).get("runs")
        yield from (str(one) for one in (runs if isinstance(runs, list) else []))
    rows = table_of(about.get("search")).get("rows")
    for row in rows if isinstance(rows, list) else []:
        trials = table_of(row).get("trials")
        for trial in trials if isinstance(trials, list) else []:
            yield str(table_of(trial).get("run", ""))


def _below(top: Path, kind: str, names: list[str], record: str, about: dict[str, Json]) -> Contents:
    """Return the contents with those of the named runs that are finished, and notes about the others."""
    runs, notes = [], []
    for name in sorted(set(names)):
        if not (within(top, name) / RUN_FILE).exists():
            notes.append(f"{name}, which has no {RUN_FILE}")
        elif (state := read_run(top / name)["state"]) != "finished":
            notes.append(f"{name}, which is {state}")
        else:
            runs.append(name)
    if not runs:
        raise RunFolderError(f"{top}: no run of it is finished, so there is nothing to bundle")
    return Contents(kind, top, tuple(runs), record, about, tuple(notes))


__all__ = ["Contents", "contents_of"]

"""The runs of a table whose rows are tuned, and what its item.json records of the trials.

A row first has its trials. Once all of them have ended, the chosen setting can run with fresh seeds. So such
a table is planned again after its trials. What is finished is known from the folders alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from raffed.config.run import RunConfig, Runtime
from raffed.errors import UsageError
from raffed.experiments.reproduction.catalogue import chosen
from raffed.experiments.reproduction.items import Cell, Item, lacking
from raffed.experiments.reproduction.planner import DIVERGED, ITEM_FILE, PlannedRun, run_name
from raffed.experiments.reproduction.search import (
    ENDED,
    LAST,
    Outcome,
    RowSearch,
    Setting,
    Tried,
    best,
    read_outcome,
    read_tried,
    setting_name,
)
from raffed.results.run_contents import Noted
from raffed.results.runfile import read_object


def searched_runs(
    item: Item,
    scale: str,
    out: Path,
    only: Sequence[str],
    seeds: int,
    runtime: Runtime | None = None,
    root: str | None = None,
) -> list[PlannedRun]:
    """Return the trials of an item's rows, and before them the runs of the settings that were chosen.

    Args:
        item: An item with a search.
        scale: smoke, proxy or full.
        out: The folder of all reproductions.
        only: Rows and columns that are asked for.
        seeds: Runs of each chosen setting.
        runtime: Where runs are executed.
        root: Folder of the data sets; without it the one in RAFFED_DATA.

    Raises:
        UsageError: None of the rows that are asked for belongs to this table.
    """
    trials: dict[Path, PlannedRun] = {}
    finals: dict[Path, PlannedRun] = {}
    search, below, known = _search(item), out / "runs" / scale, recorded_trials(item, scale, out)
    cells, why = included(item, scale, only, root)
    for cell, config in cells:
        config = config if runtime is None else replace(config, runtime=runtime)
        tries = []
        for setting in search.tried(config, scale):
            job, tried = _trial(cell, config, below, setting, search, known)
            tries.append(tried)
            if not tried.recorded:
                _add(trials, [job])
        winner = best(tries)
        if winner is not None:
            runs = [search.final(config, winner.setting, number) for number in range(seeds)]
            _add(finals, [_planned(cell, run, below)[0] for run in runs])
    if not cells and why:
        raise UsageError(f"{item.key}: {'; '.join(dict.fromkeys(why.values()))}")
    return [*finals.values(), *trials.values()]


def included(
    item: Item, scale: str, only: Sequence[str], root: str | None = None
) -> tuple[list[tuple[Cell, RunConfig]], dict[str, str]]:
    """Return the cells that are rows of a table with a search, and row → why others are not.

    Args:
        item: An item with a search.
        scale: smoke, proxy or full.
        only: Rows and columns that are asked for.
        root: Folder of the data sets; without it the one in RAFFED_DATA.
    """
    from raffed.runtime.data_source import read_once

    with read_once():
        return _included(item, scale, only, root)


def _included(
    item: Item, scale: str, only: Sequence[str], root: str | None
) -> tuple[list[tuple[Cell, RunConfig]], dict[str, str]]:
    search = _search(item)
    found: list[tuple[Cell, RunConfig]] = []
    why: dict[str, str] = {}
    for cell in chosen(item, only):
        config = item.at(cell, scale)
        if config is None:
            continue
        if cell.row not in why:
            here = config if root is None else replace(config, data=replace(config.data, root=root))
            why[cell.row] = search.excluded(here)
        if not why[cell.row]:
            found.append((cell, config))
    return found, {row: reason for row, reason in why.items() if reason}


def _search(item: Item) -> RowSearch:
    if item.search is None:
        raise ValueError(f"{item.key} has no search")
    return item.search


Known: TypeAlias = dict[str, tuple[str, float]]  # name of a run's folder → state and score of the trial


def recorded_trials(item: Item, scale: str, out: Path) -> Known:
    """Return the trials that item.json records as ended. Their runs need not be there any more.

    The name of a folder has the run's identity, so that a trial of another protocol is not taken for it.
    """
    found: Known = {}
    for row in _recorded_rows(out / item.paper / item.name / scale):
        trials = row.get("trials")
        for one in trials if isinstance(trials, list) else []:
            if one.get("state") in ENDED:
                score = one.get("score")
                name = Path(str(one.get("run"))).name
                found[name] = str(one["state"]), math.nan if score is None else float(score)
    return found


def _recorded_rows(folder: Path) -> list[Noted]:
    if not (folder / ITEM_FILE).exists():
        return []
    about = read_object(folder, ITEM_FILE).get("search")
    rows = about.get("rows") if isinstance(about, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _trial(
    cell: Cell, config: RunConfig, below: Path, setting: Setting, search: RowSearch, known: Known
) -> tuple[PlannedRun, Tried]:
    """Return a trial, and what is known of it from its run, or from item.json if the run is not there."""
    job, outcome = _planned(cell, search.trial(config, setting), below, setting)
    if outcome.state or job.folder.name not in known:
        return job, read_tried(setting, job.folder, search.select, outcome)
    state, score = known[job.folder.name]
    return job, Tried(setting, job.folder, state, score, recorded=True)


def _planned(
    cell: Cell, run: RunConfig, below: Path, trial: Setting | None = None
) -> tuple[PlannedRun, Outcome]:
    """Return a run that is planned, and how it ended before. Its run.json is read once."""
    folder = below / run_name(run)
    outcome, missing = read_outcome(folder), lacking(run)
    reason = f"missing: {', '.join(missing)}" if missing else ""
    reason = f"{DIVERGED}: {outcome.error}" if outcome.diverged else reason
    job = PlannedRun(cells=(cell,), seed=run.seed, config=run, folder=folder, left_out=reason, trial=trial)
    return job, outcome


def _add(found: dict[Path, PlannedRun], jobs: Iterable[PlannedRun]) -> None:
    """Add jobs. Cells that need the same run share it."""
    for job in jobs:
        before = found.get(job.folder)
        found[job.folder] = job if before is None else replace(before, cells=(*before.cells, *job.cells))


def search_record(item: Item, scale: str, out: Path, found: Iterable[PlannedRun]) -> Noted:
    """Return what item.json says about the trials: each row's settings with their scores, and the choice.

    Rows that an earlier command recorded, and that this one was not asked for, are kept.

    Args:
        item: The item.
        scale: smoke, proxy or full.
        out: The folder of all reproductions.
        found: The planned runs.
    """
    if item.search is None:
        return {}
    folder = out / item.paper / item.name / scale
    search, jobs = item.search, list(found)
    root = next((job.config.data.root for job in jobs if job.config is not None), None)
    places = {(cell.row, cell.column): cell for job in jobs for cell in job.cells}
    known = recorded_trials(item, scale, out)
    rows: dict[tuple[str, str], Noted] = {
        (str(row.get("row")), str(row.get("column"))): row for row in _recorded_rows(folder)
    }
    for place, cell in places.items():
        config = item.at(cell, scale) or cell.config
        tries = []
        for setting in search.tried(config, scale):
            tries.append(_trial(cell, config, out / "runs" / scale, setting, search, known)[1])
        rows[place] = _row_record(*place, tries, folder)
    remarks = {cell.row: search.remark(cell.config) for cell in places.values()}
    about: Noted = {
        "select": search.select,
        "validation": search.validation,
        "last": LAST,
        "seeds": search.seeds,
        "rows": [*rows.values()],
        "remarks": [{"row": row, "what": what} for row, what in remarks.items() if what],
        "excluded": [{"row": row, "why": why} for row, why in included(item, scale, (), root)[1].items()],
    }
    return {"search": about}


def _row_record(row: str, column: str, tries: Sequence[Tried], folder: Path) -> Noted:
    winner = best(tries)
    return {
        "row": row,
        "column": column,
        "chosen": None if winner is None else setting_name(winner.setting),
        "trials": [
            {
                "setting": setting_name(one.setting),
                "state": one.state or "never run",
                "score": None if math.isnan(one.score) else one.score,
                "run": os.path.relpath(one.folder, folder),
            }
            for one in tries
        ],
    }


__all__ = ["included", "search_record", "searched_runs"]

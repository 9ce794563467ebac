"""The runs of a table whose rows are tuned, and what its item.json records of the trials.

A row first has its trials. Once all of them have ended, the chosen setting can run with fresh seeds. So such
a table is planned again after its trials. What is finished is known from the folders alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from raffed.config.run import RunConfig, Runtime
from raffed.errors import UsageError
from raffed.experiments.reproduction.catalogue import chosen
from raffed.experiments.reproduction.items import Cell, Item, lacking
from raffed.experiments.reproduction.planner import DIVERGED, PlannedRun, run_name
from raffed.experiments.reproduction.search import (
    LAST,
    Search,
    Setting,
    Tried,
    best,
    has_diverged,
    read_tried,
    setting_name,
)
from raffed.results.run_contents import Noted
from raffed.results.runfile import read_run


def searched_runs(
    item: Item, scale: str, out: Path, only: Sequence[str], seeds: int, runtime: Runtime | None = None
) -> list[PlannedRun]:
    """Return the trials of an item's rows, and before them the runs of the settings that were chosen.

    Args:
        item: An item with a search.
        scale: smoke, proxy or full.
        out: The folder of all reproductions.
        only: Rows and columns that are asked for.
        seeds: Runs of each chosen setting.
        runtime: Where runs are executed.

    Raises:
        UsageError: None of the rows that are asked for belongs to this table.
    """
    trials: dict[Path, PlannedRun] = {}
    finals: dict[Path, PlannedRun] = {}
    cells, why = included(item, scale, only)
    for cell, config in cells:
        config = config if runtime is None else replace(config, runtime=runtime)
        tries = list(_trials(item, cell, config, scale, out))
        _add(trials, tries)
        _add(finals, _finals(item, cell, config, scale, out, tries, seeds))
    if not trials and why:
        raise UsageError(f"{item.key}: {'; '.join(why.values())}")
    return [*finals.values(), *trials.values()]


def included(
    item: Item, scale: str, only: Sequence[str]
) -> tuple[list[tuple[Cell, RunConfig]], dict[str, str]]:
    """Return the cells that are rows of a table with a search, and row → why others are not."""
    search = _search(item)
    found: list[tuple[Cell, RunConfig]] = []
    why: dict[str, str] = {}
    for cell in chosen(item, only):
        config = item.at(cell, scale)
        if config is None:
            continue
        if cell.row not in why:
            why[cell.row] = search.excluded(config)
        if not why[cell.row]:
            found.append((cell, config))
    return found, {row: reason for row, reason in why.items() if reason}


def _search(item: Item) -> Search:
    if item.search is None:
        raise ValueError(f"{item.key} has no search")
    return item.search


def _trials(item: Item, cell: Cell, config: RunConfig, scale: str, out: Path) -> Iterator[PlannedRun]:
    search = _search(item)
    for setting in search.tried(config, scale):
        run = search.trial(config, setting)
        yield _planned(cell, run, out / "runs" / scale, setting)


def _finals(
    item: Item,
    cell: Cell,
    config: RunConfig,
    scale: str,
    out: Path,
    tries: Sequence[PlannedRun],
    seeds: int,
) -> list[PlannedRun]:
    search = _search(item)
    winner = best([read_tried(job.trial or {}, job.folder, search.select) for job in tries])
    if winner is None:
        return []
    runs = [search.final(config, winner.setting, number) for number in range(seeds)]
    return [_planned(cell, run, out / "runs" / scale) for run in runs]


def _planned(cell: Cell, run: RunConfig, below: Path, trial: Setting | None = None) -> PlannedRun:
    folder = below / run_name(run)
    missing = lacking(run)
    reason = f"missing: {', '.join(missing)}" if missing else ""
    if has_diverged(folder):
        reason = f"{DIVERGED}: {read_run(folder).get('error')}"
    return PlannedRun(cells=(cell,), seed=run.seed, config=run, folder=folder, left_out=reason, trial=trial)


def _add(found: dict[Path, PlannedRun], jobs: Iterable[PlannedRun]) -> None:
    """Add jobs. Cells that need the same run share it."""
    for job in jobs:
        before = found.get(job.folder)
        found[job.folder] = job if before is None else replace(before, cells=(*before.cells, *job.cells))


def search_record(item: Item, scale: str, folder: Path, found: Iterable[PlannedRun]) -> Noted:
    """Return what item.json says about the trials: each row's settings with their scores, and the choice.

    Args:
        item: The item.
        scale: smoke, proxy or full.
        folder: The folder of item.json.
        found: The planned runs, trials among them.
    """
    if item.search is None:
        return {}
    search, jobs = item.search, list(found)
    tried: dict[tuple[str, str], list[Tried]] = {}
    for job in jobs:
        if job.trial is not None:
            for cell in job.cells:
                one = read_tried(job.trial, job.folder, search.select)
                tried.setdefault((cell.row, cell.column), []).append(one)
    remarks = {cell.row: search.remark(cell.config) for job in jobs for cell in job.cells}
    about: Noted = {
        "select": search.select,
        "validation": search.validation,
        "last": LAST,
        "seeds": search.seeds,
        "rows": [_row_record(*place, tries, folder) for place, tries in tried.items()],
        "remarks": [{"row": row, "what": what} for row, what in remarks.items() if what],
        "excluded": [{"row": row, "why": why} for row, why in included(item, scale, ())[1].items()],
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

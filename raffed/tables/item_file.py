"""item.json: the cells of a reproduction, the runs behind them, and the trials of a table that is tuned.

`raffed.analysis` makes tables and figures of this file. In a table that is tuned, a row begins with its
trials. Once those of a rung have ended, the best of them go on, and at the end the chosen setting runs with
fresh seeds. So such a table is planned again after its trials. The folders alone say what is finished.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Json
from raffed.errors import RunFolderError, UsageError
from raffed.methods.authors import is_authors
from raffed.own.located import Sources
from raffed.results.lock import make_folder
from raffed.results.runfile import Noted, read_object, read_run, write_json
from raffed.runs.code_record import check_code
from raffed.runtime.run_method import references_in
from raffed.tables.catalogue import chosen
from raffed.tables.items import MEASURES, Cell, Item
from raffed.tables.planner import DIVERGED, ITEM_FILE, Planned, PlannedRun, PlannedStudy, run_name
from raffed.tables.search import (
    ENDED,
    LAST,
    Outcome,
    RowSearch,
    Setting,
    Tried,
    promoted,
    read_outcome,
    read_score,
    setting_name,
)


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
    assert item.search is not None
    search, below, known = item.search, out / "runs" / scale, recorded_trials(item, scale, out)
    cells, why = included(item, scale, only, root)
    for cell, config in cells:
        config = config if runtime is None else replace(config, runtime=runtime)
        climb = _climbed(cell, config, below, search, scale, known)
        _add(trials, climb.jobs)
        if climb.winner is not None:
            runs = [search.final(config, climb.winner, number) for number in range(seeds)]
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
    from raffed.runtime.setup_model import read_once

    assert item.search is not None
    search = item.search
    cells: list[tuple[Cell, RunConfig]] = []
    why: dict[str, str] = {}
    with read_once():
        for cell in chosen(item, only):
            config = item.at(cell, scale)
            if config is None:
                continue
            if cell.row not in why:
                here = config if root is None else replace(config, data=replace(config.data, root=root))
                why[cell.row] = search.excluded(here)
            if not why[cell.row]:
                cells.append((replace(cell, measure=search.measure(config)), config))
    return cells, {row: reason for row, reason in why.items() if reason}


Known: TypeAlias = dict[str, tuple[str, float]]  # name of a run's folder → state and score of the trial


def recorded_trials(item: Item, scale: str, out: Path) -> Known:
    """Return the trials that item.json records as ended. Their runs need not be there any more.

    The name of a folder has the run's identity, so that a trial of another protocol is not taken for it.
    """
    recorded: Known = {}
    for row in _recorded_rows(item.folder(scale, out)):
        trials = row.get("trials")
        for trial in trials if isinstance(trials, list) else []:
            if trial.get("state") in ENDED:
                score = trial.get("score")
                name = Path(str(trial.get("run"))).name
                recorded[name] = str(trial["state"]), math.nan if score is None else float(score)
    return recorded


def _recorded_rows(folder: Path) -> list[Noted]:
    if not (folder / ITEM_FILE).exists():
        return []
    about = read_object(folder, ITEM_FILE).get("search")
    rows = about.get("rows") if isinstance(about, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


class Climb(NamedTuple):
    """The trials of a cell, rung by rung as far as they are decided.

    Attributes:
        tried: All trials, also those that are known from item.json alone.
        jobs: The runs of the others.
        winner: The setting that is chosen; None as long as it is not.
    """

    tried: list[Tried]
    jobs: list[PlannedRun]
    winner: Setting | None


def _climbed(
    cell: Cell, config: RunConfig, below: Path, search: RowSearch, scale: str, known: Known
) -> Climb:
    rungs = search.rungs(config.federation.rounds, scale)
    settings = list(search.settings(config))[: rungs[0][0]]
    climb, before = Climb([], [], None), dict[tuple[str, int], Path]()
    for (_, rounds), count in zip(rungs, [*(number for number, _ in rungs[1:]), 1], strict=True):
        trials = [
            [
                _trial(cell, config, below, setting, rounds, seed, search, known)
                for seed in range(1 if scale == "smoke" else search.tuning_seeds)
            ]
            for setting in settings
        ]
        settings = promoted([[tried for _, tried in seeds] for seeds in trials], count)
        for job, tried in (pair for seeds in trials for pair in seeds):
            climb.tried.append(tried)
            if not tried.recorded:
                shorter = before.get((setting_name(tried.setting), tried.seed))
                climb.jobs.append(replace(job, shorter=shorter, decided=bool(settings)))
        if not settings:
            return climb
        before = {(setting_name(trial.setting), trial.seed): trial.folder for trial in climb.tried}
    return climb._replace(winner=settings[0])


def _trial(
    cell: Cell,
    config: RunConfig,
    below: Path,
    setting: Setting,
    rounds: int,
    seed: int,
    search: RowSearch,
    known: Known,
) -> tuple[PlannedRun, Tried]:
    """Return a trial, and what is known of it from its run, or from item.json if the run is not there."""
    job, outcome = _planned(cell, search.trial(config, setting, rounds, seed), below, setting)
    state, score, recorded = outcome.state, math.nan, False
    if outcome.diverged:
        state = "diverged"
    elif state == "finished":
        score = read_score(job.folder, search.select, search.counted(config))
    elif not state and job.folder.name in known:
        (state, score), recorded = known[job.folder.name], True
    return job, Tried(setting, job.folder, state, score, recorded, seed, rounds)


def _planned(
    cell: Cell, run: RunConfig, below: Path, trial: Setting | None = None
) -> tuple[PlannedRun, Outcome]:
    """Return a run that is planned, and how it ended before. Its run.json is read once."""
    folder = below / run_name(run)
    outcome = read_outcome(folder)
    reason = f"{DIVERGED}: {outcome.error}" if outcome.diverged else ""
    job = PlannedRun(cells=(cell,), seed=run.seed, config=run, folder=folder, left_out=reason, trial=trial)
    return job, outcome


def _add(planned: dict[Path, PlannedRun], jobs: Iterable[PlannedRun]) -> None:
    """Add jobs. Cells that need the same run share it."""
    for job in jobs:
        before = planned.get(job.folder)
        planned[job.folder] = job if before is None else replace(before, cells=(*before.cells, *job.cells))


def search_record(item: Item, scale: str, out: Path, planned: Iterable[PlannedRun]) -> Noted:
    """Return what item.json says about the trials: each row's settings with their scores, and the choice.

    Rows that an earlier command recorded, and that this one was not asked for, are kept.

    Args:
        item: The item.
        scale: smoke, proxy or full.
        out: The folder of all reproductions.
        planned: The planned runs.
    """
    if item.search is None:
        return {}
    search, jobs, folder = item.search, list(planned), item.folder(scale, out)
    root = next((job.config.data.root for job in jobs if job.config is not None), None)
    places = {(cell.row, cell.column): cell for job in jobs for cell in job.cells}
    known = recorded_trials(item, scale, out)
    rows: dict[tuple[str, str], Noted] = {
        (str(row.get("row")), str(row.get("column"))): row for row in _recorded_rows(folder)
    }
    for place, cell in places.items():
        config = item.at(cell, scale) or cell.config
        climb = _climbed(cell, config, out / "runs" / scale, search, scale, known)
        rows[place] = _row_record(*place, climb, folder)
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


def _row_record(row: str, column: str, climb: Climb, folder: Path) -> Noted:
    return {
        "row": row,
        "column": column,
        "chosen": None if climb.winner is None else setting_name(climb.winner),
        "trials": [
            {
                "setting": setting_name(trial.setting),
                "seed": trial.seed,
                "rounds": trial.rounds,
                "state": trial.state or "never run",
                "score": None if math.isnan(trial.score) else trial.score,
                "run": os.path.relpath(trial.folder, folder),
            }
            for trial in climb.tried
        ],
    }


# The files that describe a table of one's own, in item.json, and whether they have changed.


def source_record(item: Item, folder: Path) -> Noted:
    """Return what item.json says about the files that describe the table, and what has changed in them.

    Args:
        item: The table. One of raffed's own papers has no such files.
        folder: The folder of its item.json, which may have been written before.
    """
    if item.source is None:
        return {}
    now = item.source
    record: Noted = {"reference": now.reference, "package": now.package, "files": dict(now.files)}
    earlier = _known(folder).get("accepted_changes")
    changes: list[Json] = [*earlier] if isinstance(earlier, list) else []
    changes += _changes(_files(folder) or now.files, now)
    return {"source": record, **({"accepted_changes": changes} if changes else {})}


def check_source(item: Item, scale: str, out: Path) -> None:
    """Refuse to go on with a table whose files have changed since its item.json was written.

    Raises:
        RunFolderError: They have. The message names them.
    """
    if item.source is None:
        return
    folder = item.folder(scale, out)
    names = [str(change["file"]) for change in _changes(_files(folder) or item.source.files, item.source)]
    if names:
        raise RunFolderError(
            f"{folder / ITEM_FILE}: {', '.join(names)} changed since this table was begun with "
            f"{item.source.reference}; choose another --out, or go on with --accept-changed-code, which "
            f"item.json records"
        )


def check_code_of(jobs: Sequence[Planned]) -> None:
    """Refuse finished runs whose own code has changed, since a table would mix two versions of it.

    Raises:
        RunFolderError: A run was made with other code than there is now. The message names the file.
    """
    for job in jobs:
        code = isinstance(job, PlannedRun) and (references_in(job.config) or is_authors(job.config.method))
        if isinstance(job, PlannedRun) and code and job.done:
            check_code(job.folder, read_run(job.folder), job.config, accept=False)


def _known(folder: Path) -> dict[str, Json]:
    return read_object(folder, ITEM_FILE) if (folder / ITEM_FILE).exists() else {}


def _files(folder: Path) -> dict[str, str]:
    """Return the files that item.json names, with their hashes; empty if there are none."""
    source = _known(folder).get("source")
    files = source.get("files") if isinstance(source, dict) else None
    return {name: str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def _changes(before: Mapping[str, str], now: Sources) -> list[dict[str, Json]]:
    names = sorted(before.keys() | now.files.keys())
    return [
        {"file": name, "from": before.get(name, ""), "to": now.files.get(name, "")}
        for name in names
        if before.get(name) != now.files.get(name)
    ]


Place: TypeAlias = tuple[str, str]  # row and column
Folders: TypeAlias = dict[Place, dict[str, list[str]]]  # place → setting → folders of finished runs


def write_item(item: Item, scale: str, out: Path, planned: Sequence[Planned]) -> Path:
    """Write item.json.

    analysis/reproduction/verdicts.py makes tables from it, and analysis/studies.py figures.
    """
    folder = item.folder(scale, out)
    runs = [job for job in planned if isinstance(job, PlannedRun)]
    studies = [job for job in planned if isinstance(job, PlannedStudy)]
    make_folder(folder)
    wanted = {(cell.row, cell.column): cell for job in runs for cell in job.cells}
    order = dict.fromkeys((cell.row, cell.column) for cell in item.cells)  # the table's, not that of the runs
    cells = {place: wanted[place] for place in (*order, *wanted) if place in wanted}
    columns = {column for _, column in cells}
    averages = [(mean, of) for mean, of in item.averaged(scale) if columns >= set(of)]
    about = {
        "schema": 1,
        "paper": item.paper,
        "name": item.name,
        "title": item.title,
        "measure": item.measure,
        "scale": scale,
        "meaning": item.meaning(scale),
        "unit": _unit(item, cells.values()),
        "margin": item.margin,
        "baseline": item.baseline,
        "note": item.note,
        "cells": _cells(cells, _folders(runs, folder)),
        "averages": [{**asdict(mean), "of": list(of), "whole": len(mean.of)} for mean, of in averages],
        "claims": _claims(item, scale, cells.keys(), {mean.column: of for mean, of in averages}),
        "picture": item.picture,
        "study": item.study,
        "studies": [os.path.relpath(job.folder, folder) for job in studies if job.done],
        "left_out": _left_out(runs, studies),
        **search_record(item, scale, out, runs),
        **source_record(item, folder),
        **({} if item.published is None else {"published": asdict(item.published)}),
    }
    write_json(folder / ITEM_FILE, about)
    return folder / ITEM_FILE


def _folders(jobs: Iterable[PlannedRun], folder: Path) -> Folders:
    """Return the folders of the finished runs behind every cell, relative to `folder`."""
    runs: Folders = {}
    for job in jobs:
        for cell in job.cells:
            of = runs.setdefault((cell.row, cell.column), {}).setdefault(cell.setting, [])
            of += [os.path.relpath(job.folder, folder)] if job.done and job.trial is None else []
    return runs


def _cells(kept: Mapping[Place, Cell], runs: Folders) -> list[Noted]:
    """Return the cells as item.json holds them. What is not special is left out."""
    return [
        {
            "row": place[0],
            "column": place[1],
            "printed": dict(cell.printed),
            "runs": list(chain(*runs[place].values())),
            **({"measure": cell.measure} if cell.measure else {}),
            **({} if cell.target else {"target": False}),
            **({"witnesses": [dict(witness) for witness in cell.witnesses]} if cell.witnesses else {}),
            **(
                {"settings": [{"setting": name, "runs": of} for name, of in runs[place].items()]}
                if cell.setting
                else {}
            ),
            **({"chosen_as": cell.chosen_as} if cell.setting and cell.chosen_as else {}),
        }
        for place, cell in kept.items()
    ]


def _left_out(jobs: Iterable[PlannedRun], studies: Iterable[PlannedStudy]) -> list[str]:
    """Return what was not done, and why. A trial that diverged is an outcome like another."""
    lost = [job for job in jobs if job.left_out and not (job.trial and job.left_out.startswith(DIVERGED))]
    # With the seed of a run that diverged, so that tables can count such runs
    why = {job.folder: job.left_out.replace(DIVERGED, f"{DIVERGED}: seed {job.seed}", 1) for job in lost}
    runs = {f"{', '.join(cell.place)}: {why[job.folder]}" for job in lost for cell in job.cells}
    return sorted(runs) + [
        f"study of seed {job.seed}: {job.left_out}" for job in studies if job.left_out and not job.done
    ]


def _claims(
    item: Item, scale: str, kept: Collection[Place], averages: Mapping[str, Sequence[str]]
) -> list[Noted]:
    """Return the claims whose cells were all asked for. Those about sizes are kept at the paper's own scale
    only.

    An average stands for the cells of its columns.
    """
    claims = [claim for claim in item.claims if scale == "full" or not claim.sized]
    return [asdict(claim) for claim in claims if claim.places(averages) <= set(kept)]


def _unit(item: Item, cells: Iterable[Cell]) -> str:
    """Return what the numbers are, each with its name if cells have measures of their own."""
    names = dict.fromkeys([item.measure, *(cell.measure or item.measure for cell in cells)])
    texts = {name: MEASURES.get(name, name) for name in names}
    return texts[item.measure] if len(texts) == 1 else "; ".join(f"{n}: {text}" for n, text in texts.items())

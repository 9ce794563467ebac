"""item.json: the cells of a reproduction and the runs behind them. `raffed.analysis` makes tables and figures
of it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.methods.authors import is_authors
from raffed.own.located import Sources
from raffed.results.lock import make_folder
from raffed.results.runfile import Noted, read_object, read_run, write_json
from raffed.runs.code_record import check_code
from raffed.runtime.run_method import references_in
from raffed.tables.items import MEASURES, Cell, Item
from raffed.tables.planner import DIVERGED, ITEM_FILE, Planned, PlannedRun, PlannedStudy
from raffed.tables.searched import search_record

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

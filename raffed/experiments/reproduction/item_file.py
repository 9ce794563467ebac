"""item.json: the cells of a reproduction and the runs behind them. `raffed.analysis` makes tables and figures
of it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from raffed.experiments.reproduction.items import MEASURES, Cell, Item
from raffed.experiments.reproduction.planner import Planned, PlannedRun, PlannedStudy
from raffed.experiments.reproduction.scales import SCALES, STUDY_SCALES
from raffed.results.lock import make_folder
from raffed.results.runfile import write_json

ITEM_FILE = "item.json"


def item_folder(item: Item, scale: str, out: Path) -> Path:
    """Return the folder of an item's tables and report."""
    return out / item.paper / item.name / scale


def write_item(item: Item, scale: str, out: Path, planned: Sequence[Planned]) -> Path:
    """Write item.json.

    analysis/reproduction/verdicts.py makes tables from it, and analysis/studies/study.py figures.
    """
    folder = item_folder(item, scale, out)
    found = [job for job in planned if isinstance(job, PlannedRun)]
    studies = [job for job in planned if isinstance(job, PlannedStudy)]
    make_folder(folder)
    runs: dict[tuple[str, str], dict[str, list[str]]] = {}  # setting → folders
    for job in found:
        for cell in job.cells:
            of = runs.setdefault((cell.row, cell.column), {}).setdefault(cell.setting, [])
            of += [os.path.relpath(job.folder, folder)] if job.done else []
    kept = {(cell.row, cell.column): cell for job in found for cell in job.cells}
    cells = [
        {
            "row": row,
            "column": column,
            "printed": dict(cell.printed),
            "runs": list(chain(*runs[row, column].values())),
            **({"measure": cell.measure} if cell.measure else {}),
            **({} if cell.target else {"target": False}),
            **({"settings": _settings(runs[row, column])} if cell.setting else {}),
        }
        for (row, column), cell in kept.items()
    ]
    columns = {column for _, column in kept}
    averages = [(one, of) for one, of in item.averaged(scale) if columns >= set(of)]
    left_out = sorted(
        {f"{', '.join(c.place)}: {job.left_out}" for job in found if job.left_out for c in job.cells}
    )
    left_out += [
        f"study of seed {job.seed}: {job.left_out}" for job in studies if job.left_out and not job.done
    ]
    about = {
        "schema": 1,
        "paper": item.paper,
        "name": item.name,
        "title": item.title,
        "measure": item.measure,
        "scale": scale,
        "meaning": (SCALES if item.cells else STUDY_SCALES)[scale],
        "unit": _unit(item, kept.values()),
        "tolerance": item.tolerance,
        "baseline": item.baseline,
        "note": item.note,
        "cells": cells,
        "averages": [{**asdict(one), "of": list(of), "whole": len(one.of)} for one, of in averages],
        "claims": _claims(item, scale, kept.keys(), {one.column: of for one, of in averages}),
        "picture": item.picture,
        "study": item.study,
        "studies": [os.path.relpath(job.folder, folder) for job in studies if job.done],
        "left_out": left_out,
    }
    write_json(folder / ITEM_FILE, about)
    return folder / ITEM_FILE


def _settings(found: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    return [{"setting": setting, "runs": runs} for setting, runs in found.items()]


def _claims(
    item: Item, scale: str, kept: Collection[tuple[str, str]], averages: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the claims whose cells were all asked for. Those about sizes are kept at the paper's own scale
    only.

    An average stands for the cells of its columns.
    """
    made = [one for one in item.claims if scale == "full" or not one.sized]
    behind = [
        {
            (row, part)
            for _, row, column, *_ in (*one.terms, *one.given)
            for part in averages.get(column, (column,))
        }
        for one in made
    ]
    return [asdict(one) for one, cells in zip(made, behind, strict=True) if cells <= set(kept)]


def _unit(item: Item, cells: Iterable[Cell]) -> str:
    """Return what the numbers are, each with its name if cells have measures of their own."""
    names = list(dict.fromkeys([item.measure, *(cell.measure or item.measure for cell in cells)]))
    said = [MEASURES.get(name, name) for name in names]
    return (
        said[0]
        if len(said) == 1
        else "; ".join(f"{name}: {text}" for name, text in zip(names, said, strict=True))
    )

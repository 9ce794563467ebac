"""Find settings whose terms are so weak that they test nothing of a method.

Runs have strengths if they were asked for (`--measures term_strength`): the gradient of each term relative to
that of the cross-entropy, at the start and at the end of the clients' training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from raffed.results.metrics import TERM_STRENGTH

from ..runs.files import JsonObject
from ..runs.load import Runs
from ..table import TextTable
from .item_runs import Place, Reproduction, cell_at, cell_names
from .view import WORDS, View, cells_with_runs

LEAST = 0.05  # of the cross-entropy's gradient; below it a term is as good as absent
NO_TEST = "no test"
NAME = TERM_STRENGTH["global"].name
Strengths = dict[str, tuple[float, float]]  # term → at the start and at the end of training


def untested(item: Reproduction, runs: Runs) -> dict[tuple[str, str], str]:
    """Return (row, column) → names of the terms that are weak, for the cells that are no test of any term.

    Cells whose runs did not measure strengths are left out, and so are methods without terms.
    """
    cells = {}
    for cell, _ in cells_with_runs(item, runs):
        terms = cell_strengths(item, cell, runs)
        weak = weak_terms(terms)
        if weak and len(weak) == len(terms):
            cells[cell["row"], cell["column"]] = ", ".join(weak)
    return cells


def no_test(item: Reproduction, places: Sequence[Place], runs: Runs) -> str:
    """Return why a claim about these cells tests nothing; empty if all of them are tests."""
    weak = untested(item, runs)
    rows = [place[0] for place in places if place in weak]
    if not rows:
        return ""
    return f"{NO_TEST}: the terms of {', '.join(dict.fromkeys(rows))} are below {100 * LEAST:.0f} %"


def cell_strengths(item: Reproduction, cell: JsonObject, runs: Runs) -> Strengths:
    """Return the strength of each term of a cell: the median over evaluated rounds, then over its seeds.

    A strength is a ratio, and in a round in which the cross-entropy is all but 0 it can be 10^4. A mean over
    rounds would then say that terms are strong which are nearly off in all the others. A first round in which
    a term is exactly 0, because clients have received nothing yet, does not count.
    """
    rows = _rows(runs)
    mine = rows[rows["run"].isin(cell_names(item, cell, runs))]
    strengths: Strengths = {}
    for name, some in mine.groupby("metric", observed=True):
        term, at = str(name).removeprefix(f"{NAME}_"), dict[str, float]()
        for model in TERM_STRENGTH:
            values = some[some["model"] == model]
            began = values[(values["round"] > 1) | (values["value"] > 0)]
            rounds = (began if len(began) else values).groupby("run", observed=True)["value"].median()
            at[model] = float(rounds.median())
        strengths[term] = at["global"], at["local"]
    return dict(sorted(strengths.items()))


def weak_terms(terms: Strengths) -> list[str]:
    """Return the terms whose mean strength is below 5 %."""
    return [name for name, both in terms.items() if mean_path(both) < LEAST]


def mean_path(both: tuple[float, float]) -> float:
    """Return the mean strength over the points of a client's training at which it was measured.

    These are its start and its end. NaN if it was measured at neither.
    """
    known = [strength for strength in both if not math.isnan(strength)]
    return sum(known) / len(known) if known else math.nan


def said_strengths(item: Reproduction, places: Sequence[Place], runs: Runs) -> str:
    """Return the mean strengths of the terms of these cells; empty if none was measured."""
    cells = ((place[0], cell_at(item, place)) for place in places)
    rows = ((row, cell_strengths(item, cell, runs)) for row, cell in cells if cell is not None)
    said = [
        f"{row}: {', '.join(f'{name} {per_cent(mean_path(both))} %' for name, both in strengths.items())}"
        for row, strengths in rows
        if strengths
    ]
    return "; ".join(dict.fromkeys(said))


def strength_view(item: Reproduction, runs: Runs) -> View:
    """Show the strength of every term of the cells that measured it."""
    lines = []
    for cell, _ in cells_with_runs(item, runs):
        terms = cell_strengths(item, cell, runs)
        weak = weak_terms(terms)
        for name, both in terms.items():
            said = f"{NO_TEST} of it" if name in weak else "strong enough"
            lines.append([cell["row"], cell["column"], name, *(per_cent(value) for value in both), said])
    titles = ["Method", "Column", "Term", "start of training %", "end of training %", "Test"]
    table = TextTable(titles, lines, WORDS | {"Term", "Test"})
    return View([], {"Strength of the terms": table} if lines else {})


def per_cent(value: float) -> str:
    """Write a share in per cent with one decimal place."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def _rows(runs: Runs) -> pd.DataFrame:
    """Return the server's rows of single terms."""

    def compute() -> pd.DataFrame:
        rows = runs.metrics
        named = rows["metric"].astype(str).str.startswith(f"{NAME}_") & (rows["split"] == "train")
        return rows[named & rows["class"].isna()]

    strength_rows: pd.DataFrame = runs.once("term strengths", compute)
    return strength_rows

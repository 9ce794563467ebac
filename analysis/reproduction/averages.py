"""Draw MAP's Figs. 9 and 11: mean aggregation against mean personalization accuracy, ours and as printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from ..figures.plots import PlotPoint, scatter
from ..metrics.measures import measures
from ..runs.load import Runs
from ..studies import DrawnFigure
from ..table import TextTable
from .item_runs import Reproduction, cell_names
from .numbers import shown
from .printed import printed_value

AXES = {"I": "aggregation_accuracy", "II": "personalization_accuracy"}
OURS = ("accuracy_last", "personal_last")


class ScorePair(NamedTuple):
    """The mean aggregation and the mean personalization accuracy of a method, as fractions."""

    x: float
    y: float


def averages_view(item: Reproduction, runs: Runs) -> tuple[list[DrawnFigure], dict[str, TextTable]]:
    """Draw the printed averages over all benchmarks and ours, and list who is on which Pareto front.

    A row without printed cells has no printed average. Fig. 11 has none at all. Smoke runs are drawn alone,
    without a front.
    """
    smoke = item.about["scale"] == "smoke"
    rows = list(dict.fromkeys(cell["row"] for cell in item.about["cells"]))
    told = {cell["row"] for cell in item.about["cells"] if cell["printed"] and not smoke}
    printed = {row: pair for row in rows if row in told and not math.isnan(sum(pair := _printed(item, row)))}
    ours, columns = _ours(item, runs)
    figures = []
    if printed:
        caption = "Printed averages over all benchmarks: Avg of Table I and of Table II."
        figures.append(DrawnFigure(_plane(printed, rows), caption, "natural"))
    if ours:
        where = ", ".join(columns)
        figures.append(
            DrawnFigure(
                _plane(ours, rows), f"Ours, mean over {where} and the seeds there are, last round.", "natural"
            )
        )
    if smoke:
        return figures, {}
    columns_of = {
        whose: pairs for whose, pairs in (("Paper", printed), ("Ours", ours)) if pairs or whose == "Ours"
    }
    lines = [[row, *(cell for pairs in columns_of.values() for cell in _cells(pairs, row))] for row in rows]
    titles = [
        f"{whose}: {what}" for whose in columns_of for what in ("aggregation %", "personalization %", "front")
    ]
    words = frozenset({"Method", *(f"{whose}: front" for whose in columns_of)})
    table = TextTable(["Method", *titles], lines, words)
    return figures, {
        "Pareto front: no other method is as good in both and better in one": table
    } if figures else {}


def front(pairs: Mapping[str, ScorePair]) -> set[str]:
    """Return the methods that no other method dominates.

    One method dominates another if it is at least as good in both accuracies and better in one.
    """
    return {
        name
        for name, pair in pairs.items()
        if not any(other.x >= pair.x and other.y >= pair.y and other != pair for other in pairs.values())
    }


def _printed(item: Reproduction, row: str) -> ScorePair:
    where = {"dataset": "Avg", "network": "Avg", "method": row}
    read = (
        printed_value(item.about["paper"], {**where, "table": table, "metric": metric})
        for table, metric in AXES.items()
    )
    return ScorePair(*(value / 100 for value in read))


def _ours(item: Reproduction, runs: Runs) -> tuple[dict[str, ScorePair], list[str]]:
    """Return the means over the columns that all methods with runs have, and these columns."""
    names = {(cell["row"], cell["column"]): cell_names(item, cell, runs) for cell in item.about["cells"]}
    there = {key: loaded for key, loaded in names.items() if loaded}
    rows, columns = (list(dict.fromkeys(key[i] for key in there)) for i in (0, 1))
    common = [column for column in columns if all((row, column) in there for row in rows)]
    values = measures(runs)[list(OURS)]
    pairs = {}
    for row in rows if common else []:
        means = [values.loc[there[row, column]].mean() for column in common]
        pairs[row] = ScorePair(*(float(sum(mean[name] for mean in means) / len(means)) for name in OURS))
    return {row: pair for row, pair in pairs.items() if not math.isnan(sum(pair))}, common


def _plane(pairs: Mapping[str, ScorePair], rows: list[str]) -> Figure:
    return scatter(
        [PlotPoint(row, *pair, math.nan, math.nan, rows.index(row)) for row, pair in pairs.items()]
    )


def _cells(pairs: Mapping[str, ScorePair], row: str) -> list[str]:
    if row not in pairs:
        return ["–", "–", "–"]
    return [*(shown([100 * value], 1) for value in pairs[row]), "yes" if row in front(pairs) else ""]

"""Show what a method costs: time, memory, rounds and traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..figures.item_plots import Cost, cost_panels
from ..metrics.measures import measures
from ..runs.files import JsonObject
from ..runs.load import Runs
from ..studies import DrawnFigure
from ..table import TextTable, without_blank
from .item_runs import Reproduction, cell_names
from .numbers import shown
from .printed import printed_value
from .verdicts import result_lines
from .view import WORDS, View, cells_with_runs

COST_DIGITS = (3, 0, 3, 2, 3, 2)


def cost_view(item: Reproduction, runs: Runs) -> View:
    """Draw seconds and the count of stored numbers against accuracy, for each data set and for their mean.

    The values of a data set are means over its columns and seeds. The mean is over the data sets that all
    methods have.
    """
    where: dict[str, dict[str, list[str]]] = {}
    for cell, names in cells_with_runs(item, runs):
        where.setdefault(cell["column"].split()[0], {}).setdefault(cell["row"], []).extend(names)
    if not where:
        return View([], {})
    costs = {
        dataset: {row: _costs(runs, names, item.about["measure"]) for row, names in methods.items()}
        for dataset, methods in where.items()
    }
    costs |= _mean_costs(costs)
    panels: dict[str, dict[str, Cost]] = {}
    lines = []
    for dataset, methods in costs.items():
        for row, numbers in methods.items():
            panels.setdefault(dataset, {})[row] = Cost(numbers[0], numbers[2], numbers[5])
            cells = zip((*numbers[:5], 100 * numbers[5]), COST_DIGITS, strict=True)
            lines.append([row, dataset, *(shown([value], digits) for value, digits in cells)])
    caption = (
        "Time: a client's local round on this machine, median over clients and rounds but the first. Memory: "
        "numbers that a "
        "client holds while it trains; batches, activations, gradients and momentum, alike for all, are left "
        "out."
    )
    titles = [
        "Method",
        "Data set",
        "s a round",
        "µs a sample",
        "held, millions",
        "in models",
        "kept, millions",
        "accuracy %",
    ]
    return View([DrawnFigure(cost_panels(panels), caption)], {"Cost": TextTable(titles, lines, WORDS)})


def _costs(runs: Runs, names: list[str], measure: str) -> list[float]:
    """Return the numbers of one line of `cost_view`.

    They are: seconds, microseconds per sample, the counts of numbers held, in models, and kept, and the
    accuracy as a fraction.
    """
    values, about = measures(runs).loc[names].mean(), runs.runs.loc[names]
    seconds, sample = (float(about[name].mean()) for name in ("client_seconds", "client_sample_seconds"))
    held = float(values["floats_training"])
    of_model = held / float(values["floats_model"])
    return [seconds, 1e6 * sample, held, of_model, float(values["floats_kept"]), float(values[measure])]


def _mean_costs(costs: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, list[float]]]:
    """Return an additional "data set" with every method's mean over the data sets that all methods have.

    Each data set counts once. The result is empty for fewer than two of them.
    """
    rows = dict.fromkeys(row for methods in costs.values() for row in methods)
    common = [methods for methods in costs.values() if methods.keys() == rows.keys()]
    if len(common) < 2:
        return {}
    means = {
        row: [sum(values) / len(common) for values in zip(*(methods[row] for methods in common), strict=True)]
        for row in rows
    }
    return {f"mean of {len(common)}": means}


def speed_view(item: Reproduction, runs: Runs) -> View:
    """Show the speed-up and the traffic of each method.

    The speed-up is the baseline's rounds divided by the method's. The traffic is the method's rounds times
    what one client sends in a round.
    """
    sent, cells = (
        4 * measures(runs)["floats_up"],
        {(cell["row"], cell["column"]): cell for cell in item.about["cells"]},
    )
    lines = result_lines(item, runs)
    base = {line.column: line.mean for line in lines if line.row == item.about["baseline"]}
    rows = []
    for line in lines:
        cell = cells[line.row, line.column]
        mb = float(sent.loc[cell_names(item, cell, runs)].mean())
        ours = (
            (base.get(line.column, math.nan) / line.mean, line.mean * mb)
            if math.isfinite(line.mean)
            else (math.nan, math.nan)
        )
        printed = [_printed(item, cell, names) for names in (("speedup", "speedup_x"), ("traffic_MB",))]
        digits = zip((*printed, *ours), (2, 1, 2, 1), strict=True)
        rows.append(
            [
                line.row,
                line.column,
                shown([line.mean], 0),
                *(shown([value], places) for value, places in digits),
            ]
        )
    theirs = ("Paper: speed-up", "Paper: MB")
    titles = ["Method", "Column", "Rounds", *theirs, "Speed-up", "MB a client sends"]
    table = without_blank(TextTable(titles, rows, WORDS), theirs)
    return View([], {"Speed-up and traffic": table})


def _printed(item: Reproduction, cell: JsonObject, metrics: Sequence[str]) -> float:
    """Return what the paper prints for a cell under another metric; NaN if it prints nothing."""
    where = cell["printed"] if item.about["scale"] != "smoke" else {}
    values = (
        [printed_value(item.about["paper"], {**where, "metric": metric}) for metric in metrics]
        if where
        else []
    )
    return next((value for value in values if not math.isnan(value)), math.nan)

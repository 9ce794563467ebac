"""Make what a report shows of a paper's item in addition to its table: figures and further tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from raffed.results.score_metrics import PERSONAL_ACCURACY, PERSONAL_BETWEEN, TEST_ACCURACY

from ..figures.item_plots import Cost, bar_panels, cost_panels, gain_curves, line_panels, stage_curves
from ..figures.plots import gains, per_seed
from ..metrics.gains import client_gains
from ..metrics.measures import measures
from ..metrics.stages import a_sel, forgetting
from ..runs.load import Runs
from ..studies.study import DrawnFigure, study_folders
from ..table import TextTable
from .averages import averages_view
from .differences import difference_sheet
from .item_runs import Reproduction, cell_names, measure_of, run_folders
from .verdicts import ROUNDS, printed_value, result_lines, shown

WORDS = frozenset({"Method", "Column", "Data set"})
READINGS = {
    "eigenvalue_variance_class": "R2, batches of one class",
    "eigenvalue_variance_client": "R3, clients' models",
    "eigenvalue_variance_raw": "R4, not standardised",
}


COST_DIGITS = (3, 0, 3, 2, 3, 2)
CURVES = {  # measure → what is drawn against the round, with its caption
    "between_mean10": [
        (
            PERSONAL_BETWEEN,
            "Accuracy of all clients' models between rounds on their "
            "local tests, mean over clients and seeds.",
        )
    ],
    "accuracy_last": [
        (TEST_ACCURACY, "Accuracy of the global model on the test set, mean over seeds."),
        (
            PERSONAL_ACCURACY,
            "Accuracy of the participants' own models on their local tests, "
            "mean over participants and seeds.",
        ),
    ],
}


class View(NamedTuple):
    """Figures, and tables by their headings."""

    figures: list[DrawnFigure]
    tables: dict[str, TextTable]


Viewer = Callable[[Reproduction, Runs], View]


def item_view(item: Reproduction, runs: Runs) -> View:
    """Return the figures and tables that the item's picture and measure ask for, and the printed differences.

    The result can be empty if there are no runs.
    """
    viewers = [PICTURES.get(item.about.get("picture", "")), MEASURED.get(item.about["measure"])]
    found = [viewer(item, runs) for viewer in viewers if viewer is not None]
    tables = {name: sheet for view in found for name, sheet in view.tables.items()}
    printed = difference_sheet(item, runs)
    tables |= {} if printed is None else {"Differences that the paper prints": printed}
    return View([one for view in found for one in view.figures], tables)


def has_table(item: Reproduction) -> bool:
    """Return whether there is a finished run to compare, or printed values that are shown without one."""
    drawn = item.about.get("picture") in NEED_NO_RUN and any(cell["printed"] for cell in item.about["cells"])
    return bool(run_folders(item)) or drawn


def showable(item: Reproduction) -> bool:
    """Return whether there is anything to show of the item: a table or a finished study."""
    return has_table(item) or bool(study_folders(item))


def _cells(item: Reproduction, runs: Runs) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return the cells that have runs, with these runs."""
    found = [(cell, cell_names(item, cell, runs)) for cell in item.about["cells"]]
    return [(cell, names) for cell, names in found if names]


def stages_view(item: Reproduction, runs: Runs) -> View:
    """Show A_sel against the stage, and how much is forgotten."""
    own, whole, lost = a_sel(runs), a_sel(runs, whole=True), forgetting(runs)
    panels: dict[str, dict[str, list[float]]] = {}
    lines = []
    for cell, names in _cells(item, runs):
        of_global = measure_of(item, cell) == "a_sel_global"
        means = (whole if of_global else own).loc[names].mean().dropna()
        if means.empty:
            continue
        panels.setdefault(cell["column"], {})[cell["row"]] = means.tolist()
        drop = (means.iloc[0] - means.iloc[-1]) if len(means) > 1 else math.nan
        # Scores by stage are of the clients' models
        falls = lost.reindex([] if of_global else names).dropna()
        values = [means.iloc[0], means.iloc[-1], drop]
        lines.append(
            [
                cell["row"],
                cell["column"],
                *(shown([100 * value], 2) for value in values),
                shown(100 * falls, 2),
            ]
        )
    if not panels:
        return View([], {})
    caption = (
        "A_sel: accuracy of the model just trained in stage m on the tests of stages 1 to m, mean over "
        "participants and the last "
        "ten visits of the stage, at most half of the run's (FEDIC and CReFF, which have no personal model: "
        "the global one, over "
        "all clients)."
    )
    titles = [
        "Method",
        "Column",
        "A_sel, first stage %",
        "last stage %",
        "drop, points",
        "forgetting F, points",
    ]
    return View(
        [DrawnFigure(stage_curves(panels), caption)], {"What is forgotten": TextTable(titles, lines, WORDS)}
    )


def rounds_view(item: Reproduction, runs: Runs) -> View:
    """Draw the item's measure against the round, as means over seeds."""
    found = []
    for metric, caption in CURVES[item.about["measure"]]:
        matrix = runs.matrix(metric)
        panels: dict[str, dict[str, dict[int, float]]] = {}
        for cell, names in _cells(item, runs):
            curve = matrix[[name for name in names if name in matrix]].mean(axis=1).dropna()
            if len(curve):
                points = {int(round): float(value) for round, value in curve.items()}  # type: ignore[call-overload]
                panels.setdefault(cell["column"], {})[cell["row"]] = points
        if panels:
            found.append(DrawnFigure(line_panels(panels, "Round"), caption))
    return View(found, {})


def _shares(item: Reproduction, runs: Runs) -> dict[tuple[str, str], float]:
    """Map (row, column) to the cell's measure, a fraction, as a mean over seeds.

    Cells without it are left out.
    """
    found = measures(runs)
    means = {
        (cell["row"], cell["column"]): float(found.loc[names, measure_of(item, cell)].mean())
        for cell, names in _cells(item, runs)
    }
    return {key: mean for key, mean in means.items() if not math.isnan(mean)}


def against_view(item: Reproduction, runs: Runs) -> View:
    """Draw the item's measure against the number at the end of its columns' names, such as `E=1`, `E=5`.

    Columns that differ before that number have separate panels.
    """
    panels: dict[str, dict[str, dict[int, float]]] = {}
    name = ""
    for (row, column), share in _shares(item, runs).items():
        where, _, setting = column.rpartition(" ")
        name, _, number = setting.partition("=")
        panels.setdefault(where, {}).setdefault(row, {})[int(number)] = share
    if not panels:
        return View([], {})
    ticks = sorted({x for lines in panels.values() for points in lines.values() for x in points})
    return View(
        [
            DrawnFigure(
                line_panels(panels, name, ticks=ticks),
                f"The table's numbers against {name}, mean over seeds.",
            )
        ],
        {},
    )


def bars_view(item: Reproduction, runs: Runs) -> View:
    """Draw the item's measure as bars.

    The last word of a column is its group, and the words before it are its panel.
    """
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for (row, column), share in _shares(item, runs).items():
        where, _, last = column.rpartition(" ")
        panels.setdefault(where, {}).setdefault(last, {})[row] = share
    return View(
        [DrawnFigure(bar_panels(panels), "The table's numbers, mean over seeds.")] if panels else [], {}
    )


def _gains(item: Reproduction, runs: Runs) -> dict[tuple[str, str], list[list[float]]]:
    """Map (row, column) to the gains of all clients over the baseline row, one list for each seed.

    The gains are those of the last survey.
    """
    cells = _cells(item, runs)
    base = {cell["column"]: names for cell, names in cells if cell["row"] == item.about["baseline"]}
    rivals = [
        (cell, names)
        for cell, names in cells
        if cell["row"] != item.about["baseline"] and cell["column"] in base
    ]
    found = {}
    for cell, names in rivals:
        found[cell["row"], cell["column"]] = client_gains(runs, names, base[cell["column"]], PERSONAL_BETWEEN)
    return {key: values for key, values in found.items() if values}


def _gain_sheet(found: Mapping[tuple[str, str], Sequence[Sequence[float]]]) -> dict[str, TextTable]:
    """Return the table of clients that gain.

    Clients are counted in each seed, and shown is the mean over seeds.
    """
    lines = []
    for (row, column), seeds in found.items():
        above, below = ([sum(value * sign > 0 for value in values) for values in seeds] for sign in (1, -1))
        clients = [len(values) for values in seeds]
        counts = [per_seed(sum(one) / len(seeds)) for one in (clients, above, below)]
        mean = shown([100 * sum(values) / len(values) for values in seeds], 2, sign=True)
        lines.append(
            [
                row,
                column,
                str(len(seeds)),
                counts[0],
                mean,
                *counts[1:],
                f"{100 * sum(above) / sum(clients):.0f}",
            ]
        )
    titles = ["Method", "Column", "Seeds", "Clients", "Mean gain, points", "gain", "lose", "gain %"]
    return {"Who gains": TextTable(titles, lines, WORDS)} if lines else {}


def gain_bars_view(item: Reproduction, runs: Runs) -> View:
    """Draw a histogram of the clients' gains for each column."""
    found = _gains(item, runs)
    if not found:
        return View([], {})
    baseline = item.about["baseline"]
    caption = (
        f"Gain of every client over {baseline} after the last round, in points, bins of 5; counts are means "
        f"over seeds."
    )
    named = {f"{row}, {column}": values for (row, column), values in found.items()}
    return View([DrawnFigure(gains(named, baseline), caption)], _gain_sheet(found))


def gain_curves_view(item: Reproduction, runs: Runs) -> View:
    """Draw the clients' sorted gains, one line for each method."""
    found = _gains(item, runs)
    panels: dict[str, dict[str, list[float]]] = {}
    for (row, column), seeds in found.items():
        panels.setdefault(column, {})[row] = [value for values in seeds for value in values]
    if not panels:
        return View([], {})
    caption = (
        f"Gain of every client over {item.about['baseline']} after the last round, sorted for each method; "
        f"all seeds."
    )
    return View([DrawnFigure(gain_curves(panels), caption)], _gain_sheet(found))


def cost_view(item: Reproduction, runs: Runs) -> View:
    """Draw seconds and the count of stored numbers against accuracy, for each data set and for their mean.

    The values of a data set are means over its columns and seeds. The mean is over the data sets that all
    methods have.
    """
    where: dict[str, dict[str, list[str]]] = {}
    for cell, names in _cells(item, runs):
        where.setdefault(cell["column"].split()[0], {}).setdefault(cell["row"], []).extend(names)
    if not where:
        return View([], {})
    found = {
        dataset: {row: _costs(runs, names, item.about["measure"]) for row, names in methods.items()}
        for dataset, methods in where.items()
    }
    found |= _mean_costs(found)
    panels: dict[str, dict[str, Cost]] = {}
    lines = []
    for dataset, methods in found.items():
        for row, one in methods.items():
            panels.setdefault(dataset, {})[row] = Cost(one[0], one[2], one[5])
            cells = zip((*one[:5], 100 * one[5]), COST_DIGITS, strict=True)
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


def _mean_costs(found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, list[float]]]:
    """Return an additional "data set" with every method's mean over the data sets that all methods have.

    Each data set counts once. The result is empty for fewer than two of them.
    """
    rows = dict.fromkeys(row for methods in found.values() for row in methods)
    common = [methods for methods in found.values() if methods.keys() == rows.keys()]
    if len(common) < 2:
        return {}
    means = {
        row: [sum(values) / len(common) for values in zip(*(one[row] for one in common), strict=True)]
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
        theirs = [_printed(item, cell, names) for names in (("speedup", "speedup_x"), ("traffic_MB",))]
        digits = zip((*theirs, *ours), (2, 1, 2, 1), strict=True)
        rows.append(
            [
                line.row,
                line.column,
                shown([line.mean], 0),
                *(shown([value], places) for value, places in digits),
            ]
        )
    titles = ["Method", "Column", "Rounds", "Paper: speed-up", "Paper: MB", "Speed-up", "MB a client sends"]
    return View([], {"Speed-up and traffic": TextTable(titles, rows, WORDS)})


def _printed(item: Reproduction, cell: Mapping[str, Any], metrics: Sequence[str]) -> float:
    """Return what the paper prints for a cell under another metric; NaN if it prints nothing."""
    where = cell["printed"]
    found = (
        [printed_value(item.about["paper"], {**where, "metric": metric}) for metric in metrics]
        if where
        else []
    )
    return next((value for value in found if not math.isnan(value)), math.nan)


def spectrum_view(item: Reproduction, runs: Runs) -> View:
    """Show the other readings of the eigenvalues' variance beside the first one."""
    found = measures(runs)
    lines = []
    for cell, names in _cells(item, runs):
        means = [float(found.loc[names, name].mean()) for name in ("eigenvalue_variance", *READINGS)]
        lines.append([cell["row"], cell["column"], *(shown([value], 1) for value in means)])
    titles = ["Method", "Column", "R1, whole batches of the test set", *READINGS.values()]
    return View([], {"Four readings of the variance": TextTable(titles, lines, WORDS)} if lines else {})


PICTURES: dict[str, Viewer] = {
    "stages": stages_view,
    "gain_bars": gain_bars_view,
    "gain_curves": gain_curves_view,
    "cost": cost_view,
    "rounds": rounds_view,
    "against": against_view,
    "bars": bars_view,
    "averages": lambda item, runs: View(*averages_view(item, runs)),
}
NEED_NO_RUN = frozenset({"averages"})  # what is printed is drawn too
MEASURED: dict[str, Viewer] = dict.fromkeys(ROUNDS, speed_view)
MEASURED |= dict.fromkeys(("eigenvalue_variance", *READINGS), spectrum_view)

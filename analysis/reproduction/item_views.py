"""Make what a report shows of a paper's item in addition to its table: figures and further tables."""

from __future__ import annotations

import math

from raffed.results.metrics import PERSONAL_ACCURACY, PERSONAL_BETWEEN, TEST_ACCURACY

from ..figures.item_plots import bar_panels, line_panels, stage_curves
from ..metrics.measures import measures
from ..metrics.stages import a_sel, forgetting
from ..runs.load import Runs
from ..studies import DrawnFigure, study_folders
from ..table import TextTable
from .averages import averages_view
from .cell_values import ROUNDS
from .cost_views import cost_view, speed_view
from .differences import difference_table
from .gain_views import gain_bars_view, gain_curves_view
from .item_runs import Reproduction, measure_of, run_folders
from .numbers import shown
from .printed_view import printed_view
from .term_strength import strength_view
from .view import WORDS, View, Viewer, cells_with_runs

READINGS = {
    "eigenvalue_variance_class": "R2, batches of one class",
    "eigenvalue_variance_client": "R3, clients' models",
    "eigenvalue_variance_raw": "R4, not standardised",
}


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


def item_view(item: Reproduction, runs: Runs) -> View:
    """Return the figures and tables that the item's picture and measure ask for, and the printed differences.

    The result can be empty if there are no runs.
    """
    pictures = PICTURES.get(item.about.get("picture", ""))
    viewers = [printed_view, pictures, MEASURED.get(item.about["measure"]), strength_view]
    views = [viewer(item, runs) for viewer in viewers if viewer is not None]
    tables = {name: table for view in views for name, table in view.tables.items()}
    printed = None if item.about["scale"] == "smoke" else difference_table(item, runs)
    tables |= {} if printed is None else {"Differences that the paper prints": printed}
    return View([figure for view in views for figure in view.figures], tables)


def has_table(item: Reproduction) -> bool:
    """Return whether there is a finished run to compare, or printed values that are shown without one."""
    drawn = item.about.get("picture") in NEED_NO_RUN and item.about["scale"] != "smoke"
    return bool(run_folders(item)) or (drawn and any(cell["printed"] for cell in item.about["cells"]))


def showable(item: Reproduction) -> bool:
    """Return whether there is anything to show of the item: a table or a finished study."""
    return has_table(item) or bool(study_folders(item))


OF_STAGES = (
    "A_sel: accuracy of the model just trained in stage m on the tests of stages 1 to m, mean over "
    "participants and the last ten visits of the stage, at most half of the run's (FEDIC and CReFF, which "
    "have no personal model: the global one, over all clients)."
)
FORGOTTEN = [
    "Method",
    "Column",
    "A_sel, first stage %",
    "last stage %",
    "drop, points",
    "forgetting F, points",
]


def stages_view(item: Reproduction, runs: Runs) -> View:
    """Show A_sel against the stage, and how much is forgotten."""
    personal, whole, lost = a_sel(runs), a_sel(runs, whole=True), forgetting(runs)
    panels: dict[str, dict[str, list[float]]] = {}
    lines = []
    for cell, names in cells_with_runs(item, runs):
        of_global = measure_of(item, cell) == "a_sel_global"
        means = (whole if of_global else personal).loc[names].mean()
        if means.isna().all():
            continue
        # A stage without an evaluated round keeps its place, or later ones would stand for it
        means = means.reindex(range(int(means.last_valid_index()) + 1))  # type: ignore[arg-type]
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
    forgotten = TextTable(FORGOTTEN, lines, WORDS)
    return View([DrawnFigure(stage_curves(panels), OF_STAGES)], {"What is forgotten": forgotten})


def rounds_view(item: Reproduction, runs: Runs) -> View:
    """Draw the item's measure against the round, as means over seeds."""
    figures = []
    for metric, caption in CURVES[item.about["measure"]]:
        matrix = runs.matrix(metric)
        panels: dict[str, dict[str, dict[int, float]]] = {}
        for cell, names in cells_with_runs(item, runs):
            curve = matrix[[name for name in names if name in matrix]].mean(axis=1).dropna()
            if len(curve):
                points = {int(round): float(value) for round, value in curve.items()}  # type: ignore[call-overload]
                panels.setdefault(cell["column"], {})[cell["row"]] = points
        if panels:
            figures.append(DrawnFigure(line_panels(panels, "Round"), caption))
    return View(figures, {})


def _shares(item: Reproduction, runs: Runs) -> dict[tuple[str, str], float]:
    """Map (row, column) to the cell's measure, a fraction, as a mean over seeds.

    Cells without it are left out.
    """
    table = measures(runs)
    means = {
        (cell["row"], cell["column"]): float(table.loc[names, measure_of(item, cell)].mean())
        for cell, names in cells_with_runs(item, runs)
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


def spectrum_view(item: Reproduction, runs: Runs) -> View:
    """Show the other readings of the eigenvalues' variance beside the first one."""
    table = measures(runs)
    lines = []
    for cell, names in cells_with_runs(item, runs):
        means = [float(table.loc[names, name].mean()) for name in ("eigenvalue_variance", *READINGS)]
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

"""Show what each client gains over an item's baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raffed.results.metrics import PERSONAL_BETWEEN

from ..figures.item_plots import gain_curves
from ..figures.plots import gains, per_seed
from ..metrics.gains import client_gains
from ..runs.load import Runs
from ..studies import DrawnFigure
from ..table import TextTable
from .item_runs import Reproduction
from .numbers import shown
from .view import WORDS, View, cells_with_runs


def _gains(item: Reproduction, runs: Runs) -> dict[tuple[str, str], list[list[float]]]:
    """Map (row, column) to the gains of all clients over the baseline row, one list for each seed.

    The gains are those of the last survey.
    """
    cells = cells_with_runs(item, runs)
    base = {cell["column"]: names for cell, names in cells if cell["row"] == item.about["baseline"]}
    rivals = [
        (cell, names)
        for cell, names in cells
        if cell["row"] != item.about["baseline"] and cell["column"] in base
    ]
    gains = {}
    for cell, names in rivals:
        gains[cell["row"], cell["column"]] = client_gains(runs, names, base[cell["column"]], PERSONAL_BETWEEN)
    return {key: values for key, values in gains.items() if values}


def _gain_table(by_cell: Mapping[tuple[str, str], Sequence[Sequence[float]]]) -> dict[str, TextTable]:
    """Return the table of clients that gain.

    Clients are counted in each seed, and shown is the mean over seeds.
    """
    lines = []
    for (row, column), seeds in by_cell.items():
        above, below = ([sum(value * sign > 0 for value in values) for values in seeds] for sign in (1, -1))
        clients = [len(values) for values in seeds]
        counts = [per_seed(sum(numbers) / len(seeds)) for numbers in (clients, above, below)]
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
    by_cell = _gains(item, runs)
    if not by_cell:
        return View([], {})
    baseline = item.about["baseline"]
    caption = (
        f"Gain of every client over {baseline} after the last round, in points, bins of 5; counts are means "
        f"over seeds."
    )
    named = {f"{row}, {column}": values for (row, column), values in by_cell.items()}
    return View([DrawnFigure(gains(named, baseline), caption)], _gain_table(by_cell))


def gain_curves_view(item: Reproduction, runs: Runs) -> View:
    """Draw the clients' sorted gains, one line for each method."""
    by_cell = _gains(item, runs)
    panels: dict[str, dict[str, list[float]]] = {}
    for (row, column), seeds in by_cell.items():
        panels.setdefault(column, {})[row] = [value for values in seeds for value in values]
    if not panels:
        return View([], {})
    caption = (
        f"Gain of every client over {item.about['baseline']} after the last round, sorted for each method; "
        f"all seeds."
    )
    return View([DrawnFigure(gain_curves(panels), caption)], _gain_table(by_cell))

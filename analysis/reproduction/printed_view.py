"""Show an item's printed numbers and ours in a picture."""

from __future__ import annotations

import math

from ..figures.printed_plots import PrintedPoint, printed_panels
from ..runs.load import Runs
from ..studies import DrawnFigure
from .item_runs import Reproduction
from .table_order import table_order
from .verdict_marks import mark
from .verdicts import Line, column_name, result_lines, verdict
from .view import View

LEVELS = (
    "The printed numbers and ours. A bar is the margin, in which the whole interval of our mean must lie. "
    "The large marks are our means, and the small dots are seeds."
)
GAINS = (
    "The printed differences to {baseline} and ours, paired by seed. The large marks are our means, and the "
    "small dots are seeds."
)


def printed_view(item: Reproduction, runs: Runs) -> View:
    """Draw every cell that has both a printed number and ours.

    At full scale these are the levels, and at proxy scale the differences to the baseline. The view is empty
    if no cell has both.
    """
    scale = item.about["scale"]
    if scale == "smoke":
        return View([], {})
    lines = result_lines(item, runs)
    gains = scale == "proxy"
    panels: dict[str, dict[str, PrintedPoint]] = {}
    for line in lines:
        word = verdict(line, scale, item.about["margin"])
        point = _gain(line, word) if gains else _level(line, word, item.about["margin"])
        if point is not None:
            panels.setdefault(column_name(item, line.column), {})[line.row] = point
    if not panels:
        return View([], {})
    shown = {row for points in panels.values() for row in points}
    names = [row for row in table_order(item)[0] if row in shown]
    baseline = item.about["baseline"]
    below = f"difference to {baseline}" if gains else ""
    caption = GAINS.format(baseline=baseline) if gains else LEVELS
    return View([DrawnFigure(printed_panels(panels, names, below, zero=gains), caption)], {})


def _level(line: Line, word: str, margin: float) -> PrintedPoint | None:
    """Return our level beside the printed one. Only a cell that is a target has a bar."""
    if not (line.ours and all(map(math.isfinite, (line.printed, *line.ours)))):
        return None
    zone = (line.printed - margin, line.printed + margin) if line.target else None
    return PrintedPoint(line.printed, zone, line.ours, mark(word).css, word)


def _gain(line: Line, word: str) -> PrintedPoint | None:
    printed = line.printed_gain
    if not (line.gains and all(map(math.isfinite, (printed, *line.gains)))):
        return None
    return PrintedPoint(printed, None, line.gains, mark(word).css, word)

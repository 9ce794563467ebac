"""Draw what was printed of a table, and what came out here, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .theme import LIGHT, Theme, dress, place, short, style

LOOKS = {  # class of a verdict: number of its colour, and its marker
    "good": (2, "o"),
    "open": (4, "D"),
    "below": (1, "X"),
    "plain": (6, "s"),
    "apart": (0, "P"),
}
ROW, WIDE = 0.26, 3.0  # inches of a row, and of a panel with the space beside it
ABOVE, BELOW = 0.42, 0.36  # inches over and under the rows of a panel
NAMED = 0.22  # inches more under the rows if the numbers have a name
KEY = 0.24  # inches of a row of the legend
LETTER, NAME = 0.071, 34  # inches of a letter, and most letters of a row's name
HALF = 0.34  # half the height of a zone, in rows


class PrintedPoint(NamedTuple):
    """A cell of a table with both numbers.

    Attributes:
        printed: the printed number.
        zone: the margin around it; None where levels are not judged.
        ours: our values, one for each seed.
        css: the class of the verdict, a key of LOOKS.
        word: the verdict.
    """

    printed: float
    zone: tuple[float, float] | None
    ours: Sequence[float]
    css: str
    word: str


def printed_panels(
    panels: Mapping[str, Mapping[str, PrintedPoint]],
    names: Sequence[str],
    below: str,
    *,
    zero: bool = False,
    theme: Theme = LIGHT,
) -> Figure:
    """Draw a panel for each column, with a row for each method.

    A tick is the printed number, and a pale bar is the margin around it. The large mark is our
    mean in the colour of its verdict, and a small dot is one seed.

    Args:
        panels: Column → row → point. A cell that is not there has an empty row.
        names: The rows, from the top.
        below: What the numbers are; empty if the text beside the figure says it.
        zero: Whether the numbers are differences, so that zero is marked.
        theme: The colours.
    """
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    left = 0.2 + LETTER * max(len(short(name, NAME)) for name in names)
    wide = 2 * WIDE if across == 1 else WIDE  # alone it would be narrower than the legend
    width, high, under = left + wide * across, ROW * len(names), BELOW + (NAMED if below else 0.0)
    with style(theme):
        handles = _handles([point for points in panels.values() for point in points.values()], theme)
        key, in_a_row = _key(handles, width)
        figure = Figure(figsize=(width, key + down * (ABOVE + high + under)))
        for number, (column, points) in enumerate(panels.items()):
            row, at = divmod(number, across)
            bottom = key + under + (down - 1 - row) * (ABOVE + high + under)
            axes = place(figure, left + wide * at, bottom, wide - 0.25, high)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), [short(name, NAME) if at == 0 else "" for name in names])
            for name, point in points.items():
                _draw(axes, names.index(name), point, theme)
            if zero:
                axes.axvline(0.0, color=theme.ink, linewidth=0.8, zorder=1)
            _dress(axes, column, below, theme)
        figure.legend(
            handles=handles,
            loc="lower left",
            ncols=in_a_row,
            frameon=False,
            fontsize=8.5,
            handletextpad=0.4,
            columnspacing=1.4,
            borderaxespad=0.2,
            labelcolor=theme.ink,
        )
    return figure


def _draw(axes: Axes, y: int, point: PrintedPoint, theme: Theme) -> None:
    if point.zone is not None:
        low, high = point.zone
        axes.add_patch(
            Rectangle((low, y - HALF), high - low, 2 * HALF, facecolor=theme.grid, linewidth=0, zorder=1.5)
        )
        axes.update_datalim([(low, y), (high, y)])
    axes.plot([point.printed], [y], **_tick(theme), zorder=2)
    if len(point.ours) > 1:
        axes.plot(point.ours, [y] * len(point.ours), **_seed(point.css, theme), zorder=3)
    axes.plot([sum(point.ours) / len(point.ours)], [y], **_mean(point.css, theme), zorder=4)


def _tick(theme: Theme) -> dict[str, Any]:
    return {
        "color": theme.ink,
        "marker": "|",
        "markersize": 13,
        "markeredgewidth": 1.6,
        "linestyle": "",
    }


def _seed(css: str, theme: Theme) -> dict[str, Any]:
    colour = theme.colours[LOOKS[css][0]]
    return {"color": colour, "marker": "o", "markersize": 3, "markeredgewidth": 0, "linestyle": ""}


def _mean(css: str, theme: Theme) -> dict[str, Any]:
    number, marker = LOOKS[css]
    return {
        "color": theme.colours[number],
        "marker": marker,
        "markersize": 9 if marker == "X" else 7,
        "markeredgecolor": theme.paper,
        "markeredgewidth": 0.8,
        "linestyle": "",
    }


def _dress(axes: Axes, column: str, below: str, theme: Theme) -> None:
    dress(axes, theme, grid=True)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    axes.margins(x=0.06)
    axes.autoscale_view(scaley=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    axes.tick_params(labelsize=8.5)
    axes.set_xlabel(short(below, 40), fontsize=8.5)
    axes.set_title(short(column, 36), loc="left", fontsize=9.5)


def _handles(points: Sequence[PrintedPoint], theme: Theme) -> list[Line2D | Rectangle]:
    """Return the legend's entries: the marks that occur."""
    handles: list[Line2D | Rectangle] = [Line2D([], [], **_tick(theme), label="printed")]
    if any(point.zone is not None for point in points):
        handles.append(Rectangle((0, 0), 1, 1, facecolor=theme.grid, linewidth=0, label="margin"))
    words: dict[tuple[int, str], dict[str, str]] = {}  # looks → verdict → class
    for css, look in LOOKS.items():
        words.setdefault(look, {}).update({point.word: css for point in points if point.css == css})
    for said in filter(None, words.values()):
        css = next(iter(said.values()))
        handles.append(Line2D([], [], **_mean(css, theme), label=f"ours: {' or '.join(said)}"))
    if any(len(point.ours) > 1 for point in points):
        handles.append(Line2D([], [], **_seed("plain", theme), label="one run"))
    return handles


def _key(handles: Sequence[Line2D | Rectangle], width: float) -> tuple[float, int]:
    """Return the height of the legend in inches, and how many entries stand in a row of it."""
    widths = [0.55 + LETTER * len(str(handle.get_label())) for handle in handles]
    in_a_row = len(handles) if sum(widths) < width else max(1, int(width / max(widths)))
    return KEY * math.ceil(len(handles) / in_a_row) + 0.1, in_a_row

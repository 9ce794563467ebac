"""Draw the pictures of a paper's item: accuracy by stage, by setting and as bars, gains, and costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .theme import LIGHT, Theme, dress, look, percent, place, short, style

WIDE, HIGH = 3.0, 2.5  # inches of a small panel with its margins
BARS = 0.8  # share of a group's width that its bars take
NAME = 44  # letters of a method's name in a key below


def stage_curves(panels: Mapping[str, Mapping[str, Sequence[float]]], theme: Theme = LIGHT) -> Figure:
    """Draw A_sel^(1) … A_sel^(M), one panel for each column and one line for each method."""
    return line_panels(
        {
            column: {name: dict(enumerate(values, start=1)) for name, values in lines.items()}
            for column, lines in panels.items()
        },
        "Stage m",
        theme,
    )


def line_panels(
    panels: Mapping[str, Mapping[str, Mapping[int, float]]],
    below: str,
    theme: Theme = LIGHT,
    ticks: Sequence[int] = (),
) -> Figure:
    """Draw {x: fraction}, one panel for each column and one line for each method.

    `below` is the name of the whole numbers x. `ticks` are the labelled x; if none are given they are round
    numbers.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    across = min(4, len(panels))
    # Alone it would be narrower than its key
    wide, high = (2 * WIDE, HIGH + 0.7) if len(panels) == 1 else (WIDE, HIGH)
    with style(theme):
        figure, places = _grid(len(panels), names, across, wide, high, 0.5)
        for axes, (column, lines) in zip(places, panels.items(), strict=True):
            for name, points in lines.items():
                colour, marker, dash = look(names.index(name), theme)
                line = axes.plot(
                    list(points),
                    list(points.values()),
                    color=colour,
                    marker=marker,
                    linestyle=dash,
                    markersize=5,
                    linewidth=1.6,
                    label=name,
                )[0]
                line.set_markevery(max(1, len(points) // 5))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            if ticks:
                axes.set_xticks(ticks)
            axes.set_xlabel(below, fontsize=9)
            _percents(axes, short(column, 34), theme)
        _key_below(figure, names, theme, _line_key)
    return figure


def bar_panels(panels: Mapping[str, Mapping[str, Mapping[str, float]]], theme: Theme = LIGHT) -> Figure:
    """Draw a fraction for each panel, group and method as a bar.

    The methods have the same order in all groups.

    A method without a value has no bar.
    """
    names = list(
        dict.fromkeys(name for groups in panels.values() for bars in groups.values() for name in bars)
    )
    with style(theme):
        figure, places = _grid(len(panels), names, min(2, len(panels)), 2 * WIDE, HIGH, 0.4)
        for axes, (title, groups) in zip(places, panels.items(), strict=True):
            for at, bars in enumerate(groups.values()):
                for name, value in bars.items():
                    left = at - BARS / 2 + BARS / len(names) * names.index(name)
                    axes.bar(
                        left, value, BARS / len(names), align="edge", **_bar_look(names.index(name), theme)
                    )
            axes.set_xticks(range(len(groups)), list(groups))
            _percents(axes, short(title, 60), theme)
            axes.grid(visible=False, axis="x")
        _key_below(figure, names, theme, _bar_key)
    return figure


def _grid(
    count: int, names: Sequence[str], across: int, wide: float, high: float, below: float
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `count` panels, `across` in a row, with room for a key of names.

    `below` is the height of a panel's axis in inches.
    """
    down, width = math.ceil(count / across), wide * across + 0.2
    key = _key_height(names, width)
    figure = Figure(figsize=(width, high * down + key + 0.1))
    rows = (divmod(number, across) for number in range(count))
    return figure, [
        place(
            figure,
            0.55 + wide * column,
            key + below + high * (down - 1 - row),
            wide - 0.7,
            high - below - 0.35,
        )
        for row, column in rows
    ]


def _bar_look(number: int, theme: Theme) -> dict[str, Any]:
    """Return the colour of a bar. When the colours repeat, bars are hatched, as lines are dashed."""
    colour, _, dash = look(number, theme)
    return {
        "facecolor": colour,
        "edgecolor": theme.paper,
        "linewidth": 0.6,
        "hatch": "" if dash == "-" else "////",
    }


def _percents(axes: Axes, title: str, theme: Theme) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(percent))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_title(title, loc="left", fontsize=9.5)
    dress(axes, theme, grid=True)
    axes.tick_params(labelsize=8)


def _key_slots(names: Sequence[str], width: float) -> tuple[int, float]:
    """Return how many names stand in a row of the key, and how many inches each takes.

    The slots are as wide as long names need, because the rows of an item may differ in their last words only.
    """
    slot = max(WIDE / 2, 0.5 + 0.062 * max(len(short(name, NAME)) for name in names))
    return max(1, int((width - 0.2) / slot)), slot


def _key_height(names: Sequence[str], width: float) -> float:
    return 0.28 * math.ceil(len(names) / _key_slots(names, width)[0]) + 0.1


def _key_below(
    figure: Figure, names: Sequence[str], theme: Theme, mark: Callable[[Axes, float, float, int, Theme], None]
) -> None:
    """Draw marks and names in rows along the bottom.

    `mark` draws that of a method, 0.3 inches long, at a place.
    """
    width, height = figure.get_size_inches()
    across, slot = _key_slots(names, width)
    rows = math.ceil(len(names) / across)
    axes = place(figure, 0.0, 0.0, width, height)
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    axes.patch.set_alpha(0.0)
    for number, name in enumerate(names):
        x, y = 0.3 + slot * (number % across), 0.2 + 0.28 * (rows - 1 - number // across)
        mark(axes, x, y, number, theme)
        axes.text(x + 0.36, y, short(name, NAME), va="center", fontsize=8.5, color=theme.ink)


def _line_key(axes: Axes, x: float, y: float, number: int, theme: Theme) -> None:
    colour, marker, dash = look(number, theme)
    axes.plot([x, x + 0.3], [y, y], color=colour, linestyle=dash, linewidth=1.6)
    axes.plot([x + 0.15], [y], color=colour, marker=marker, markersize=5)


def _bar_key(axes: Axes, x: float, y: float, number: int, theme: Theme) -> None:
    axes.add_patch(Rectangle((x, y - 0.07), 0.3, 0.14, **_bar_look(number, theme)))


def gain_curves(panels: Mapping[str, Mapping[str, Sequence[float]]], theme: Theme = LIGHT) -> Figure:
    """Draw the clients' gains of all seeds, sorted from the largest down, and write how many clients gain.

    Each column has a panel, and each method has a line.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    high = max(3.0, 0.24 * len(names) + 1.0)
    with style(theme):
        figure = Figure(figsize=(5.6 * len(panels) + 0.2, high))
        for number, (column, lines) in enumerate(panels.items()):
            axes = place(figure, 0.75 + 5.6 * number, 0.55, 2.9, high - 0.95)
            for name, values in lines.items():
                gains = np.sort(np.asarray(values, float))[::-1]
                shares = (np.arange(len(gains)) + 0.5) / len(gains)
                colour, marker, dash = look(names.index(name), theme)
                line = axes.plot(
                    shares, gains, color=colour, marker=marker, linestyle=dash, linewidth=1.5, markersize=4
                )[0]
                line.set_markevery(max(1, len(gains) // 8))
            axes.axhline(0, color=theme.ink, linewidth=0.9)
            axes.set(xlim=(0, 1), xlabel="Clients, sorted by their gain", ylabel="Gain in points")
            axes.xaxis.set_major_formatter(FuncFormatter(percent))
            _percents(axes, short(column, 34), theme)
            axes.yaxis.set_major_formatter(
                FuncFormatter(lambda value, _: f"{100 * value:+.0f}".replace("-", "−"))
            )
            winners = {name: float(np.mean(np.asarray(values) > 0)) for name, values in lines.items()}
            texts = {name: f"{short(name, 16)}: {100 * share:.0f} % gain" for name, share in winners.items()}
            _key_beside(axes, sorted(lines, key=lambda name: -winners[name]), names, texts, theme)
    return figure


def _key_beside(
    axes: Axes, shown: Sequence[str], names: Sequence[str], texts: Mapping[str, str], theme: Theme
) -> None:
    """Draw marks and texts to the right of a panel, from the top."""
    step = min(0.11, 1 / max(len(shown), 1))
    for number, name in enumerate(shown):
        colour, marker, dash = look(names.index(name), theme)
        y = 1 - step * (number + 0.5)
        axes.plot(
            [1.03, 1.1],
            [y, y],
            color=colour,
            linestyle=dash,
            linewidth=1.5,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.plot(
            [1.065], [y], color=colour, marker=marker, markersize=5, transform=axes.transAxes, clip_on=False
        )
        axes.text(1.13, y, texts[name], transform=axes.transAxes, va="center", fontsize=8.5, color=theme.ink)


class Cost(NamedTuple):
    """The cost of a method on a data set.

    It has the median seconds of a client's round, the millions of numbers held in training, and the accuracy.
    """

    seconds: float
    floats: float
    accuracy: float


def cost_panels(panels: Mapping[str, Mapping[str, Cost]], theme: Theme = LIGHT) -> Figure:
    """Draw each data set's accuracy against seconds (left) and against the count of numbers held (right)."""
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    high = max(2.7, 0.24 * len(names) + 0.8)
    with style(theme):
        figure = Figure(figsize=(9.0, high * len(panels)))
        for number, (dataset, points) in enumerate(panels.items()):
            bottom = high * (len(panels) - 1 - number) + 0.55
            left, right = (place(figure, at, bottom, 2.9, high - 0.95) for at in (0.65, 4.15))
            for name, point in points.items():
                colour, marker, _ = look(names.index(name), theme)
                for axes, x in ((left, point.seconds), (right, point.floats)):
                    axes.plot(
                        [x],
                        [point.accuracy],
                        marker=marker,
                        color=colour,
                        markersize=7,
                        alpha=0.9,
                        linestyle="",
                    )
            for axes, label in (
                (left, "Seconds of a client's round, median"),
                (right, "Numbers held in training, millions"),
            ):
                axes.set_xlabel(label, fontsize=9)
                axes.set_xlim(left=0)
                axes.margins(0.12)
                axes.xaxis.set_major_locator(MaxNLocator(5))
                _percents(axes, dataset if axes is left else "", theme)
            _key_beside(right, list(points), names, {name: short(name, 20) for name in names}, theme)
    return figure

"""Pictures of a paper's item: accuracy after each stage, who gains over a baseline, cost against accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .figures import LIGHT, Theme, dress, look, percent, place, short, style

WIDE, HIGH = 3.0, 2.5  # inches of a small panel with its margins


def stage_curves(panels: Mapping[str, Mapping[str, Sequence[float]]], theme: Theme = LIGHT) -> Figure:
    """column → method → A_sel^(1) … A_sel^(M): a panel a column, a line a method."""
    return line_panels({column: {name: dict(enumerate(values, start=1)) for name, values in lines.items()}
                        for column, lines in panels.items()}, "Stage m", theme)  # fmt: skip


def line_panels(panels: Mapping[str, Mapping[str, Mapping[int, float]]], below: str, theme: Theme = LIGHT) -> Figure:
    """column → method → {x: share}: a panel a column, a line a method; `below` names the whole numbers x."""
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    across = min(4, len(panels))
    down = math.ceil(len(panels) / across)
    key = 0.28 * math.ceil(len(names) / (2 * across)) + 0.1
    with style(theme):
        figure = Figure(figsize=(WIDE * across + 0.2, HIGH * down + key + 0.1))
        for number, (column, lines) in enumerate(panels.items()):
            row = down - 1 - number // across
            axes = place(figure, 0.55 + WIDE * (number % across), key + 0.5 + HIGH * row, WIDE - 0.7, HIGH - 0.85)
            for name, points in lines.items():
                colour, marker, dash = look(names.index(name), theme)
                line = axes.plot(list(points), list(points.values()), color=colour, marker=marker, linestyle=dash,
                                 markersize=5, linewidth=1.6)[0]  # fmt: skip
                line.set_markevery(max(1, len(points) // 5))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_xlabel(below, fontsize=9)
            _percents(axes, short(column, 34), theme)
        _key_below(figure, names, across, theme)
    return figure


def _percents(axes: Axes, title: str, theme: Theme) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(percent))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_title(title, loc="left", fontsize=9.5)
    dress(axes, theme, grid=True)
    axes.tick_params(labelsize=8)


def _key_below(figure: Figure, names: Sequence[str], across: int, theme: Theme) -> None:
    """Marks and names of the lines in rows along the bottom, two a panel."""
    width, height = figure.get_size_inches()
    rows = math.ceil(len(names) / (2 * across))
    axes = place(figure, 0.0, 0.0, width, height)
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    axes.patch.set_alpha(0.0)
    for number, name in enumerate(names):
        colour, marker, dash = look(number, theme)
        x, y = 0.3 + WIDE / 2 * (number % (2 * across)), 0.2 + 0.28 * (rows - 1 - number // (2 * across))
        axes.plot([x, x + 0.3], [y, y], color=colour, linestyle=dash, linewidth=1.6)
        axes.plot([x + 0.15], [y], color=colour, marker=marker, markersize=5)
        axes.text(x + 0.36, y, short(name, 18), va="center", fontsize=8.5, color=theme.ink)


def gain_curves(panels: Mapping[str, Mapping[str, Sequence[float]]], theme: Theme = LIGHT) -> Figure:
    """column → method → gains of the clients of all seeds: each sorted from the largest down; beside it how many gain."""
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
                line = axes.plot(shares, gains, color=colour, marker=marker, linestyle=dash, linewidth=1.5, markersize=4)[0]
                line.set_markevery(max(1, len(gains) // 8))
            axes.axhline(0, color=theme.ink, linewidth=0.9)
            axes.set(xlim=(0, 1), xlabel="Clients, sorted by their gain", ylabel="Gain in points")
            axes.xaxis.set_major_formatter(FuncFormatter(percent))
            _percents(axes, short(column, 34), theme)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+.0f}".replace("-", "−")))
            winners = {name: float(np.mean(np.asarray(values) > 0)) for name, values in lines.items()}
            texts = {name: f"{short(name, 16)}: {100 * share:.0f} % gain" for name, share in winners.items()}
            _key_beside(axes, sorted(lines, key=lambda name: -winners[name]), names, texts, theme)
    return figure


def _key_beside(axes: Axes, shown: Sequence[str], names: Sequence[str], texts: Mapping[str, str], theme: Theme) -> None:
    """Marks and texts to the right of a panel, from above."""
    step = min(0.11, 1 / max(len(shown), 1))
    for number, name in enumerate(shown):
        colour, marker, dash = look(names.index(name), theme)
        y = 1 - step * (number + 0.5)
        axes.plot([1.03, 1.1], [y, y], color=colour, linestyle=dash, linewidth=1.5, transform=axes.transAxes, clip_on=False)
        axes.plot([1.065], [y], color=colour, marker=marker, markersize=5, transform=axes.transAxes, clip_on=False)
        axes.text(1.13, y, texts[name], transform=axes.transAxes, va="center", fontsize=8.5, color=theme.ink)


class Cost(NamedTuple):
    """A method on a data set: median seconds of a client's round, numbers that it holds in training (millions), accuracy."""

    seconds: float
    floats: float
    accuracy: float


def cost_panels(panels: Mapping[str, Mapping[str, Cost]], theme: Theme = LIGHT) -> Figure:
    """data set → method → its cost: accuracy against seconds to the left, against numbers held to the right."""
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
                    axes.plot([x], [point.accuracy], marker=marker, color=colour, markersize=7, alpha=0.9, linestyle="")
            for axes, label in ((left, "Seconds of a client's round, median"), (right, "Numbers held in training, millions")):
                axes.set_xlabel(label, fontsize=9)
                axes.set_xlim(left=0)
                axes.margins(0.12)
                axes.xaxis.set_major_locator(MaxNLocator(5))
                _percents(axes, dataset if axes is left else "", theme)
            _key_beside(right, list(points), names, {name: short(name, 20) for name in names}, theme)
    return figure

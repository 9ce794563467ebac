"""Draw panels that several studies share: features and proxies in the plane, and lines against a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from raffed.analysis.figures.theme import LIGHT, Theme, class_look, dress, look, percent, place, style
from raffed.analysis.studies import Study, records

WIDE, HIGH = 2.85, 2.85  # inches of a panel in a grid, its margins in it
ARROW = 10.0  # proxies are drawn this much longer, as in MAP's Fig. 5


def planes(
    study: Study, rows: Sequence[Sequence[str]], classes: Sequence[int], theme: Theme = LIGHT
) -> Figure:
    """Draw a grid of named panels with features by class, and proxies as arrows of ARROW times their length.

    The proxies of missing classes are hollow.
    """
    columns = max(map(len, rows))
    with style(theme):
        figure = Figure(figsize=(WIDE * columns + 0.1, HIGH * len(rows) + 0.42))
        for i, names in enumerate(rows):
            for j, name in enumerate(names):
                bottom = 0.42 + HIGH * (len(rows) - 1 - i)
                axes = place(figure, 0.1 + WIDE * j, bottom, WIDE - 0.2, HIGH - 0.35)
                _plane(axes, study.points[study.points["panel"] == name], theme)
                axes.set_title(name, loc="left", fontsize=9.5)
        _legend(figure, classes, theme)
    return figure


def _plane(axes: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    features = rows[rows["kind"] == "feature"]
    for label, points in features.groupby("label"):
        colour, marker = class_look(int(str(label)), theme)
        drawn = axes.plot(points["x"], points["y"], linestyle="", marker=marker, color=colour, alpha=0.5)[0]
        drawn.set(markersize=3.4 * _size(int(str(label)), theme), markeredgewidth=0)
    # Proxies may coincide: the large marks below, and each a little smaller than the one before, so that all
    # are seen.
    proxies = sorted(records(rows[rows["kind"] != "feature"]), key=lambda row: -_size(row["label"], theme))
    for number, row in enumerate(proxies):
        x, y, missing = ARROW * row["x"], ARROW * row["y"], row["kind"] == "missing proxy"
        colour, marker = class_look(row["label"], theme)
        edge, face, colour = (theme.ink, theme.paper, theme.ink) if missing else (theme.paper, colour, colour)
        size = ((8.0 if missing else 10.0) - 4.0 * number / len(proxies)) * _size(row["label"], theme)
        axes.plot([0, x], [0, y], color=colour, linewidth=0.8 if missing else 1.5, zorder=4)
        drawn = axes.plot([x], [y], marker=marker, markersize=size, zorder=5)[0]
        drawn.set(markeredgecolor=edge, markerfacecolor=face, markeredgewidth=0.8)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    axes.set_aspect("equal", adjustable="datalim")  # lengths and angles are what the plane is for
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    dress(axes, theme, grid=False)


def _size(label: int, theme: Theme) -> float:
    """Return the size at which a class's mark looks as large as the others'."""
    return {"*": 1.7, "D": 0.85}.get(class_look(label, theme)[1], 1.0)


def _legend(figure: Figure, classes: Sequence[int], theme: Theme) -> None:
    """Write the classes' colours and markers in one line at the bottom."""
    axes = place(figure, 0.1, 0.0, figure.get_size_inches()[0] - 0.2, 0.36)
    axes.set(xlim=(0, max(len(classes), 6)), ylim=(0, 1))
    axes.set_axis_off()
    for number, label in enumerate(classes):
        colour, marker = class_look(label, theme)
        axes.plot(
            [number + 0.1],
            [0.5],
            marker=marker,
            markersize=6 * _size(label, theme),
            color=colour,
            markeredgewidth=0,
        )
        axes.text(number + 0.2, 0.47, f"class {label}", va="center", fontsize=8.5, color=theme.ink)


def lines(
    groups: Mapping[str, Mapping[str, pd.Series[float]]],
    x: str,
    theme: Theme = LIGHT,
    *,
    share: bool = False,
    looks: Mapping[str, int] | None = None,
    ticks: Sequence[float] = (),
) -> Figure:
    """Draw numbers against x in panels side by side, with a legend below.

    `share` marks fractions, which are shown in per cent. `ticks` are the labelled x; if none are given they
    are round numbers.
    """
    names = list(dict.fromkeys(name for curves in groups.values() for name in curves))
    number = {name: i for i, name in enumerate(names)} | dict(looks or {})
    columns = min(3, len(groups))
    rows = math.ceil(len(groups) / columns)
    wide, high = (3.5, 2.75) if columns > 1 else (5.6, 3.2)
    with style(theme):
        figure = Figure(figsize=(wide * columns + 0.1, high * rows + 0.35))
        for i, (heading, curves) in enumerate(groups.items()):
            bottom = 0.85 + high * (rows - 1 - i // columns)
            axes = place(figure, 0.6 + wide * (i % columns), bottom, wide - 0.75, high - 0.85)
            for name, curve in curves.items():
                _line(axes, curve, number[name], theme)
            _scales(axes, x, share)
            if ticks:
                axes.set_xticks(ticks)
            axes.set_title(heading, loc="left", fontsize=10)
            dress(axes, theme, grid=True)
        _names(figure, {name: number[name] for name in names}, theme)
    return figure


def _line(axes: Axes, curve: pd.Series[float], number: int, theme: Theme) -> None:
    """Draw one curve with about twelve markers, in the colour and style of its number."""
    colour, marker, dash = look(number, theme)
    values = curve.to_numpy(float)
    drawn = axes.plot(curve.index, values, color=colour, marker=marker, linestyle=dash, linewidth=1.6)
    drawn[0].set(markersize=4, markevery=max(1, len(curve) // 12))


def _scales(axes: Axes, x: str, share: bool) -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.tick_params(labelsize=8.5)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(percent if share else _plain))


def _plain(value: float, _: object) -> str:
    return f"{value:.4g}".replace("-", "−")


def _names(figure: Figure, numbers: Mapping[str, int], theme: Theme) -> None:
    width = figure.get_size_inches()[0]
    axes = place(figure, 0.0, 0.05, width, 0.3)
    axes.set(xlim=(0, width), ylim=(0, 1))
    axes.set_axis_off()
    left = 0.6
    for name, number in numbers.items():
        colour, marker, dash = look(number, theme)
        axes.plot([left, left + 0.32], [0.5, 0.5], color=colour, linestyle=dash, linewidth=1.6)
        axes.plot([left + 0.16], [0.5], color=colour, marker=marker, markersize=4.5)
        axes.text(left + 0.4, 0.47, name, va="center", fontsize=9, color=theme.ink)
        left += 0.62 + 0.078 * len(name)

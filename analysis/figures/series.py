"""Read from a figure what the script of a page draws again, so that values can be shown at the pointer.

A line, a band or a point with a label is a series, as it would be in matplotlib's own legend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from raffed.results.text import visible

from .theme import LIGHT, percent

DIGITS = 6  # of a number in a page


class Series(NamedTuple):
    """A line or a point of a chart.

    Attributes:
        label: its name.
        colour: the number of its colour in the themes.
        marker: matplotlib's letter of its mark.
        dashed: whether its line is dashed.
        x: places on the axis below, in ascending order.
        y: its values, one for each x.
        low: the lower edge of its band, one for each x; empty without a band.
        high: the upper edge of its band.
        bars: error bars of a point, each as [x, y, x, y] of its two ends.
    """

    label: str
    colour: int
    marker: str
    dashed: bool
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    bars: list[list[float]]


class Chart(NamedTuple):
    """The series of one pair of axes.

    Attributes:
        title: what stands above the axes.
        below: the name of the axis below.
        beside: the name of the axis to the left.
        percent_below: whether values below are fractions that are shown in per cent.
        points: whether the series are single points instead of lines.
        series: the lines or points.
    """

    title: str
    below: str
    beside: str
    percent_below: bool
    points: bool
    series: list[Series]


def charts(figure: Figure) -> list[Chart]:
    """Return a chart for each pair of axes with labelled series of fractions; empty if there is none."""
    drawn = [_chart(axes) for axes in figure.axes if _in_percent(axes.yaxis)]
    return [chart for chart in drawn if chart.series]


def plain_charts(figure: Figure) -> list[Mapping[str, object]]:
    """Return the charts of a figure as plain JSON, in which every name is safe to show."""
    return [
        {
            **chart._asdict(),
            "title": visible(chart.title),
            "series": [{**line._asdict(), "label": visible(line.label)} for line in chart.series],
        }
        for chart in charts(figure)
    ]


def _chart(axes: Axes) -> Chart:
    handles, labels = axes.get_legend_handles_labels()
    named = list(zip(labels, handles, strict=True))
    bands = {label: _band(band) for label, band in named if isinstance(band, PolyCollection)}
    series = [_line(label, line, bands.get(label, {})) for label, line in named if isinstance(line, Line2D)]
    points = [_point(label, bar) for label, bar in named if isinstance(bar, ErrorbarContainer)]
    title = axes.get_title(loc="left")
    below, beside = axes.get_xlabel(), axes.get_ylabel()
    return Chart(title, below, beside, _in_percent(axes.xaxis), not series, series or points)


def _in_percent(axis: Axis) -> bool:
    formatter = axis.get_major_formatter()
    return isinstance(formatter, FuncFormatter) and formatter.func is percent


def _line(label: str, line: Line2D, band: dict[float, tuple[float, float]]) -> Series:
    x, y = (np.asarray(values, float).tolist() for values in line.get_data())
    edges = [band[place] for place in x] if band.keys() >= set(x) and x else []
    low, high = ([_short(edge[side]) for edge in edges] for side in (0, 1))
    looks = (_colour(line), str(line.get_marker()), line.get_linestyle() == "--")
    return Series(label, *looks, list(map(_short, x)), list(map(_short, y)), low, high, [])


def _point(label: str, container: ErrorbarContainer) -> Series:
    """Return a point with its intervals."""
    line, _, collections = container.lines
    ends = [np.asarray(bar, float).ravel().tolist() for bars in collections for bar in bars.get_segments()]
    return _line(label, line, {})._replace(bars=[list(map(_short, bar)) for bar in ends])


def _band(filled: PolyCollection) -> dict[float, tuple[float, float]]:
    """Map each x to the lower and the upper edge of a band."""
    edges: dict[float, tuple[float, float]] = {}
    for path in filled.get_paths():
        for x, y in np.asarray(path.vertices, float).tolist():
            low, high = edges.get(x, (y, y))
            edges[x] = (min(low, y), max(high, y))
    return edges


def _colour(line: Line2D) -> int:
    colours = [*LIGHT.colours, *LIGHT.more]
    colour = to_hex(line.get_color())
    return colours.index(colour) if colour in colours else 0


def _short(value: float) -> float:
    return round(value, DIGITS)

"""Draw ranks, the plane of the two accuracies, and the clients' gains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..metrics.compare import Ranking
from .theme import LIGHT, Theme, dress, look, percent, place, short, spread, style

NAMED = 12  # points that have their names beside the axes
BIN = 0.05  # width of a histogram's bars, as a share of the samples
PANEL = 2.85  # inches of a histogram
LETTER, LINE = 0.07, 0.11  # inches of a digit on a bar, and of a line of them
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly


class PlotPoint(NamedTuple):
    """A method in the plane of two accuracies: means, half widths of the intervals over seeds, and its look.

    A half width is NaN for one seed.
    """

    label: str
    x: float
    y: float
    dx: float
    dy: float
    style: int


def scatter(points: Sequence[PlotPoint], theme: Theme = LIGHT) -> Figure:
    """Draw personalization (upwards) against aggregation accuracy (to the right), with 95 % intervals.

    The names are beside the picture, with the best method first. Of many, the best ones are named.
    """
    with style(theme):
        height = max(3.6, 0.2 * min(NAMED, len(points)) + 0.9)
        figure = Figure(figsize=(6.4, height))
        named = sorted(points, key=lambda point: point.x + point.y)[-NAMED:]
        names = 0.5 + 0.075 * max(len(short(point.label, 30)) for point in named)
        axes = place(figure, 0.9, 0.55, 6.4 - 1.0 - names, height - 0.8)
        for point in points:
            colour, marker, _ = look(point.style, theme)
            axes.errorbar(
                point.x,
                point.y,
                xerr=_known(point.dx),
                yerr=_known(point.dy),
                fmt=marker,
                color=colour,
                markersize=7,
                elinewidth=1,
                alpha=0.95 if point in named else 0.4,
                label=point.label,
            )
        dress(axes, theme, grid=True)
        axes.margins(0.12)
        for axis, name in ((axes.xaxis, "Aggregation accuracy"), (axes.yaxis, "Personalization accuracy")):
            axis.set_major_formatter(FuncFormatter(percent))
            axis.set_major_locator(MaxNLocator(5))
            axis.set_label_text(name)
        _names_beside(axes, named, theme)
    return figure


def _names_beside(axes: Axes, points: Sequence[PlotPoint], theme: Theme) -> None:
    """Write the names of the points to the right of the axes, the last of them at the top."""
    last = max(len(points) - 1, 1)
    places = spread([0.08 + 0.92 * i / last for i in range(len(points))], min(0.07, 1 / len(points)))
    for point, at in zip(points, places, strict=True):
        colour, marker, _ = look(point.style, theme)
        axes.plot(
            [1.04],
            [at],
            marker=marker,
            markersize=6,
            color=colour,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(
            1.075,
            at,
            short(point.label, 30),
            transform=axes.transAxes,
            va="center",
            fontsize=9,
            color=theme.ink,
        )


def _known(half: float) -> float | None:
    return None if math.isnan(half) else half


def rank_diagram(ranking: Ranking, theme: Theme = LIGHT) -> Figure:
    """Draw Demšar's critical-difference diagram.

    Mean ranks are on a line with 1, the best, to the left. Bars join methods that do not differ.
    """
    ordered = sorted(ranking.ranks.items(), key=lambda pair: pair[1])
    half = (len(ordered) + 1) // 2
    spans = ranking.cliques()
    top = 0.55 + 0.16 * len(spans)
    with style(theme):
        width, height = 8.2, top + 0.55 + 0.26 * half
        figure = Figure(figsize=(width, height))
        axes = place(figure, 0.0, 0.0, width, height)
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        low, high = 1.0, float(len(ordered))
        left, right = 2.3, width - 2.3

        def at(rank: float) -> float:
            return left + (rank - low) / max(high - low, 1e-9) * (right - left)

        line = 0.62
        _draw_ranks(axes, [at(rank) for rank in range(1, len(ordered) + 1)], line, theme)
        if ranking.difference <= high - low:
            axes.plot([left, at(low + ranking.difference)], [0.2, 0.2], color=theme.ink, linewidth=2)
        shown = f"critical difference {ranking.difference:.2f}"
        axes.text(left, 0.14, shown, fontsize=8.5, va="bottom", color=theme.ink)
        _draw_cliques(axes, [(at(start), at(end)) for start, end in spans], line, theme)
        for number, (label, rank) in enumerate(ordered):
            y = top + 0.45 + 0.26 * (number if number < half else len(ordered) - 1 - number)
            _ranked(
                axes, label, rank, at(rank), (line, y), left if number < half else right, number < half, theme
            )
    return figure


def _draw_cliques(axes: Axes, spans: Sequence[tuple[float, float]], line: float, theme: Theme) -> None:
    """Draw a bar below the line for each group of methods that do not differ."""
    for number, (start, end) in enumerate(spans):
        bar, colour = line + 0.12 + 0.12 * number, theme.colours[1]
        ends = [start - 0.05, end + 0.05]
        axes.plot(ends, [bar, bar], color=colour, linewidth=3, solid_capstyle="butt")


def _draw_ranks(axes: Axes, places: Sequence[float], line: float, theme: Theme) -> None:
    """Draw the line of ranks, of which there are two or more, with a tick at each whole one.

    Where numbers would touch each other, every fifth tick has one, and the first.
    """
    axes.plot([places[0], places[-1]], [line, line], color=theme.ink, linewidth=1.2)
    for rank, x in enumerate(places, start=1):
        axes.plot([x] * 2, [line - 0.06, line], color=theme.ink, linewidth=1)
        if rank == 1 or rank % 5 == 0 or places[1] - places[0] > 0.25:
            axes.text(x, line - 0.1, str(rank), ha="center", va="bottom", fontsize=8, color=theme.ink)


def _ranked(
    axes: Axes,
    label: str,
    rank: float,
    x: float,
    drop: tuple[float, float],
    edge: float,
    on_left: bool,
    theme: Theme,
) -> None:
    """Draw a method's point on the line of ranks, and the thread from there to its name."""
    away = -1 if on_left else 1
    axes.plot([x, x, edge + 0.1 * away], [drop[0], drop[1], drop[1]], color=theme.grid, linewidth=1)
    axes.plot([x], [drop[0]], marker="o", markersize=4, color=theme.colours[0])
    text = f"{short(label, 22)}  {rank:.2f}" if on_left else f"{rank:.2f}  {short(label, 22)}"
    side = "right" if on_left else "left"
    axes.text(edge + 0.16 * away, drop[1], text, ha=side, va="center", fontsize=9, color=theme.ink)


def gains(
    differences: Mapping[str, Sequence[Sequence[float]]], baseline: str, theme: Theme = LIGHT
) -> Figure:
    """Draw histograms of what each client gains over the baseline, one panel for each method.

    Bins are five points wide, and the counts are written on the bars. A method has one list of gains for each
    seed; clients are counted in each seed, and the mean over seeds is shown.
    """
    names = list(differences)
    columns = 2 if len(names) == 4 else min(3, len(names))  # four stand better in a square
    rows = math.ceil(len(names) / columns)
    pooled = [
        np.concatenate([np.asarray(values, float) for values in seeds]) for seeds in differences.values()
    ]
    seeds = [len(values) for values in differences.values()]
    low, high = (
        min(-BIN, *(float(values.min()) for values in pooled)),
        max(BIN, *(float(values.max()) for values in pooled)),
    )
    first, last = math.floor(round(low / BIN, 9)), math.ceil(round(high / BIN, 9))
    edges = np.round(np.arange(first, last + 1) * BIN, 10)
    with style(theme):
        figure = Figure(figsize=(3.75 * columns + 0.45, 2.65 * rows + 0.05))
        for number, (name, values, of) in enumerate(zip(names, pooled, seeds, strict=True)):
            left, bottom = 0.65 + 3.75 * (number % columns), 0.6 + 2.65 * (rows - 1 - number // columns)
            axes = place(figure, left, bottom, PANEL, 1.6)
            _draw_counts(axes, [count / of for count in count_bins(values, edges)], edges, theme)
            lose, clients = (per_seed(count / of) for count in (int((values < 0).sum()), len(values)))
            axes.set_title(f"{short(name, 24)}: {lose} of {clients} lose", loc="left", fontsize=9)
            axes.set_xlabel(f"Gain over {short(baseline, 24)}, points", fontsize=9)
            axes.set_ylabel("Clients" if of == 1 else f"Clients, mean of {of} seeds", fontsize=9)
            axes.xaxis.set_major_formatter(FuncFormatter(_gain))
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))  # whole points
            axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.margins(y=0.15)
            dress(axes, theme, grid=False)
    return figure


def client_dots(
    accuracies: Mapping[str, Sequence[float]], looks: Mapping[str, int], theme: Theme = LIGHT
) -> Figure:
    """Draw the accuracy of every client as a dot, with one row for each method and a line at its median.

    Dots that would cover each other stand below each other: those of one place are spread over the row.
    """
    height = 0.34 * len(accuracies)
    names = [short(name, 30) for name in accuracies]
    left = 0.3 + 0.085 * max(map(len, names))
    with style(theme):
        figure = Figure(figsize=(left + 5.2, height + 0.75))
        axes = place(figure, left, 0.55, 5.0, height)
        for row, (name, values) in enumerate(accuracies.items()):
            colour, _, _ = look(looks[name], theme)
            ordered = np.sort(np.asarray(values, float))
            offsets = 0.56 * ((np.arange(len(ordered)) * GOLDEN) % 1 - 0.5)
            axes.plot(ordered, row + offsets, "o", color=colour, markersize=4, alpha=0.55, markeredgewidth=0)
            axes.plot([np.median(ordered)] * 2, [row - 0.36, row + 0.36], color=theme.ink, linewidth=1.6)
        dress(axes, theme, grid=True)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter(FuncFormatter(percent))
        axes.set_xlabel("Accuracy of a client's own model on its own test part")
    return figure


def _draw_counts(axes: Axes, counts: Sequence[float], edges: npt.NDArray[np.float64], theme: Theme) -> None:
    """Draw the bars of a histogram with their counts, losses in another colour than gains."""
    centres = (edges[:-1] + edges[1:]) / 2
    colours = [theme.colours[1] if centre < 0 else theme.colours[0] for centre in centres]
    bars = axes.bar(centres, counts, width=BIN * 0.9, color=colours)
    across = PANEL / len(counts)
    upright = across < LETTER * max(len(per_seed(count)) for count in counts)
    for bar, count in zip(bars, counts, strict=True):
        if count and across > LINE:  # of narrower bars the axis says the height
            middle = bar.get_x() + bar.get_width() / 2
            text = axes.text(middle, count, per_seed(count), ha="center", va="bottom", fontsize=7)
            text.set(color=theme.ink, rotation=90 if upright else 0)
    axes.axvline(0, color=theme.ink, linewidth=0.8)


def per_seed(count: float) -> str:
    """Write a count. A mean of counts over seeds has one digit after the point."""
    return f"{count:.0f}" if count == int(count) else f"{count:.1f}"


def _gain(value: float, _: object) -> str:
    return f"{100 * value:+.0f}".replace("-", "−") if value else "0"


def count_bins(values: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> list[int]:
    """Count the values in each bin; a bin includes its lower edge.

    A difference that only rounding keeps from an edge counts as on the edge.
    """
    counts, _ = np.histogram(np.round(values, 9), edges)
    return [int(count) for count in counts]

"""Draw the effect of settings on the score of a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..table import in_four_digits
from .theme import LIGHT, MARKERS, Theme, dress, percent, place, plain_decades, style

FILLED = 1 / 2  # a heat map is drawn if more than this share of its cells was tried


def varied(trials: pd.DataFrame) -> list[str]:
    """Return the settings that have several values, that with the most of them first."""
    names = [name for name in trials.columns if name != "score" and trials[name].nunique() > 1]
    return sorted(names, key=lambda name: -trials[name].nunique())


def setting_map(trials: pd.DataFrame, theme: Theme = LIGHT) -> Figure | None:
    """Draw the score against two settings, or against one setting as points.

    A grid becomes a heat map, in which a cell has the best score of further settings. Settings that were
    drawn from ranges become points in the plane. Return None if no setting was varied.
    """
    names = varied(trials)[:2]
    if len(names) < 2:
        return _strip(trials, names, theme) if names else None
    tried = len(trials.drop_duplicates(subset=names))
    cells = trials[names[0]].nunique() * trials[names[1]].nunique()
    if len(trials) <= 2 * cells and tried > FILLED * cells:
        return _heat(trials, names, theme)
    numeric = all(pd.api.types.is_numeric_dtype(trials[name]) for name in names)
    return _plane(trials, names, theme) if numeric else _strip(trials, names, theme)


def _plane(trials: pd.DataFrame, names: Sequence[str], theme: Theme) -> Figure:
    """Draw a point for each trial at its two settings. The colour is the score; the best is ringed."""
    ordered = trials.sort_values("score")  # of two at one place the better one lies above
    with style(theme):
        figure = Figure(figsize=(5.2, 3.4))
        axes = place(figure, 1.0, 0.7, 3.1, 2.5)
        x, y, scores = (ordered[name] for name in (names[1], names[0], "score"))
        points = axes.scatter(x, y, c=scores, cmap="cividis", s=42, zorder=3)
        best = int(trials["score"].argmax())  # of equal scores the first, as the search chooses
        axes.plot(
            trials[names[1]].iloc[[best]],
            trials[names[0]].iloc[[best]],
            linestyle="",
            marker="o",
            markersize=11,
            markerfacecolor="none",
            color=theme.colours[1],
            zorder=4,
        )
        for name, set_scale, axis in (
            (names[1], axes.set_xscale, axes.xaxis),
            (names[0], axes.set_yscale, axes.yaxis),
        ):
            if _spans_decades(trials[name]):
                set_scale("log")
                plain_decades(axis)
        axes.set(xlabel=names[1], ylabel=names[0])
        bar = figure.colorbar(points, cax=place(figure, 4.25, 0.7, 0.12, 2.5), format=FuncFormatter(percent))
        bar.outline.set(visible=False)
        dress(axes, theme, grid=True)
        dress(bar.ax, theme, grid=False)
    return figure


def _spans_decades(values: pd.Series[float]) -> bool:
    return bool(values.min() > 0 and values.max() / values.min() >= 10)


def _heat(trials: pd.DataFrame, names: Sequence[str], theme: Theme) -> Figure:
    table = trials.pivot_table(index=names[0], columns=names[1], values="score", aggfunc="max")
    rows, columns = table.shape
    values = table.to_numpy(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    with style(theme):
        width, height = 0.95 * columns, 0.5 * rows
        figure = Figure(figsize=(width + 1.3, height + 1.0))
        axes = place(figure, 1.05, 0.75, width, height)
        axes.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto")
        axes.set_xticks(range(columns), [in_four_digits(name) for name in table.columns])
        axes.set_yticks(range(rows), [in_four_digits(name) for name in table.index])
        axes.set(xlabel=names[1], ylabel=names[0])
        dress(axes, theme, grid=False)
        for (i, j), value in np.ndenumerate(values):
            bright = (value - low) > 0.55 * (high - low)
            text = "–" if np.isnan(value) else f"{100 * value:.1f}"
            axes.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                fontsize=9,
                fontweight="bold" if value == high else "normal",
                color="#101010" if bright else "#f4f4f4",
            )
    return figure


def _strip(trials: pd.DataFrame, names: Sequence[str], theme: Theme) -> Figure:
    """Draw the score of every trial against each setting, one panel for each setting."""
    with style(theme):
        figure = Figure(figsize=(3.6 * len(names) + 0.2, 2.8))
        for number, name in enumerate(names):
            axes = place(figure, 0.7 + 3.6 * number, 0.6, 2.75, 2.0)
            values = trials[name]
            plain = pd.to_numeric(values, errors="coerce")
            shown = values.astype(str) if plain.isna().any() else plain
            axes.plot(
                shown,
                trials["score"],
                linestyle="",
                marker=MARKERS[number],
                color=theme.colours[number],
                alpha=0.85,
            )
            if not plain.isna().any() and _spans_decades(plain):
                axes.set_xscale("log")
                plain_decades(axes.xaxis)
            axes.set_xlabel(name)
            axes.yaxis.set_major_formatter(FuncFormatter(percent))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            dress(axes, theme, grid=True)
    return figure

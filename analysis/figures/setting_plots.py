"""Draw the effect of settings on the score of a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .theme import LIGHT, MARKERS, Theme, dress, percent, place, plain_decades, style


def setting_map(trials: pd.DataFrame, theme: Theme = LIGHT) -> Figure | None:
    """Draw the score against two settings as a heat map, or against one setting as points.

    For a third setting the best score is shown. Return None if no setting was varied.
    """
    names = [name for name in trials.columns if name != "score" and trials[name].nunique() > 1]
    if not names:
        return None
    names = sorted(names, key=lambda name: -trials[name].nunique())[:2]
    gridded = len(names) == 2 and len(trials) <= 2 * trials[names[0]].nunique() * trials[names[1]].nunique()
    return _heat(trials, names, theme) if gridded else _strip(trials, names, theme)


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
        axes.set_xticks(range(columns), [str(name) for name in table.columns])
        axes.set_yticks(range(rows), [str(name) for name in table.index])
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
            positive = not plain.isna().any() and plain.min() > 0 and plain.max() / plain.min() >= 10
            if positive:
                axes.set_xscale("log")
                plain_decades(axes.xaxis)
            axes.set_xlabel(name)
            axes.yaxis.set_major_formatter(FuncFormatter(percent))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            dress(axes, theme, grid=True)
    return figure

"""Draw accuracy against what it took: bytes that were sent, and time on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raffed.results.metrics import VIRTUAL_SECONDS

from ..metrics.targets import sent_bytes
from ..runs.groups import Group
from ..runs.load import Runs
from .curves import Curve, draw_curves, group_curves, names_beside
from .theme import LIGHT, Theme, place, style

ALIKE = 1.01  # methods whose bytes differ by less are told apart by rounds as well


class SpentAxis(NamedTuple):
    """Something that a federation has only so much of.

    Attributes:
        title: what was spent, in full.
        label: the name of the axis, short enough to stand below a narrow picture.
        spent: function from runs to a frame round × run of what was spent until then.
        tells: function from the sums of all groups to whether a picture says more than one against rounds.
    """

    title: str
    label: str
    spent: Callable[[Runs], pd.DataFrame]
    tells: Callable[[list[float]], bool]


def _megabytes(runs: Runs) -> pd.DataFrame:
    frame: pd.DataFrame = runs.once("megabytes until a round", lambda: sent_bytes(runs).cumsum() / 1e6)
    return frame


BUDGETS: Mapping[str, SpentAxis] = {
    "bytes": SpentAxis(
        "Megabytes sent until then, both directions, all participants",
        "Megabytes sent",
        _megabytes,
        lambda totals: min(totals) > 0 and max(totals) > ALIKE * min(totals),
    ),
    "time": SpentAxis(
        "Seconds on the virtual clock",
        "Seconds on the virtual clock",
        lambda runs: runs.matrix(VIRTUAL_SECONDS),
        lambda totals: True,
    ),
}


def budget_figure(
    runs: Runs, task: tuple[str, str], panel: str, budget: str, theme: Theme = LIGHT
) -> Figure | None:
    """Draw one panel of one task against a budget.

    Args:
        runs: the runs to draw.
        task: the data set and the partition.
        panel: one of PANELS.
        budget: one of BUDGETS.
        theme: the colours of the figure.

    Returns:
        A figure; None if no run measured it, or if it would say no more than the picture against rounds.
    """
    kind = BUDGETS[budget]
    spent = kind.spent(runs)
    moved = [_moved(curve, group, spent) for group, curve in group_curves(runs, task, panel)]
    shown = [curve for curve in moved if curve is not None]
    if not shown or not kind.tells([float(curve.rounds[-1] / curve.steps) for curve in shown]):
        return None
    with style(theme):
        figure = Figure(figsize=(6.2, 3.9))
        axes = place(figure, 0.7, 0.55, 6.2 - 0.8 - names_beside(shown), 3.2)
        draw_curves(axes, shown, theme)
        axes.set_xlabel(kind.label)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


def _moved(curve: Curve, group: Group, spent: pd.DataFrame) -> Curve | None:
    """Return a curve with what was spent in place of the rounds, as a mean over the group's runs."""
    mine = [run for run in group.used if run in spent]
    if not mine:
        return None
    until = spent[mine].mean(axis=1).reindex(curve.rounds)
    known = until.notna().to_numpy()
    if not known.any():
        return None
    places = until.to_numpy(np.float64)[known]
    return curve._replace(
        rounds=places,
        mean=curve.mean[known],
        low=curve.low[known],
        high=curve.high[known],
        steps=float(curve.rounds[known][-1]),
    )

"""Draw how a search went: what ASHA ended and when, and what a random search or Optuna found when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..runs.files import JsonObject
from .theme import LIGHT, Theme, dress, percent, place, style

WIDTH, HEIGHT = 4.6, 2.6  # inches of the axes
STATES = {"finished": "#009e73", "pruned": "#d55e00"}  # colours that `in_the_dark` knows


class SearchedTrial(NamedTuple):
    """A trial as it is drawn.

    Attributes:
        number: Its place in the order of proposals, from 0.
        state: "finished", "pruned" or another.
        score: A fraction; None if it was not measured.
        reports: (round, score) of what the search has learned from it, in the order of rounds.
    """

    number: int
    state: str
    score: float | None
    reports: Sequence[tuple[int, float]]


def searched_trials(trials: Sequence[JsonObject]) -> list[SearchedTrial]:
    """Return the trials of one method, as sweep.json records them."""
    searched = []
    for position, trial in enumerate(trials):
        score, number, reports = trial.get("score"), trial.get("number", position), trial.get("reports") or []
        pairs = [(int(pair[0]), float(pair[1])) for pair in reports] if isinstance(reports, list) else []
        searched.append(
            SearchedTrial(
                number if isinstance(number, int) else position,
                str(trial.get("state")),
                float(score) if isinstance(score, int | float) else None,
                [(round, value) for round, value in pairs if value >= 0],  # a negative score stands for NaN
            )
        )
    return searched


def pruning(trials: Sequence[SearchedTrial], theme: Theme = LIGHT) -> Figure | None:
    """Draw the reported scores of each trial over its rounds, with a cross where it was ended early.

    Return None if no trial was ended early.
    """
    drawn = [trial for trial in trials if trial.reports]
    if not any(trial.state == "pruned" for trial in drawn):
        return None
    with style(theme):
        figure = Figure(figsize=(WIDTH + 0.9, HEIGHT + 0.75))
        axes = place(figure, 0.7, 0.6, WIDTH, HEIGHT)
        for trial in drawn:
            rounds, values = zip(*trial.reports, strict=True)
            colour, ended = STATES.get(trial.state, theme.colours[-1]), trial.state == "pruned"
            axes.plot(rounds, values, color=colour, alpha=0.75, linewidth=1.2, marker=".", markersize=4)
            axes.plot(rounds[-1:], values[-1:], color=colour, marker="X" if ended else "o", linestyle="")
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(percent))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        dress(axes, theme, grid=True)
    return figure


def history(trials: Sequence[SearchedTrial], theme: Theme = LIGHT) -> Figure | None:
    """Draw the score of each finished trial in the order of proposals, and the best score so far.

    Return None if fewer than two trials have a score.
    """
    scored = sorted((trial.number + 1, trial.score) for trial in trials if trial.score is not None)
    if len(scored) < 2:
        return None
    best = [max(score for _, score in scored[: upto + 1]) for upto in range(len(scored))]
    numbers = [number for number, _ in scored]
    with style(theme):
        figure = Figure(figsize=(WIDTH + 0.9, HEIGHT + 0.75))
        axes = place(figure, 0.7, 0.6, WIDTH, HEIGHT)
        axes.step(numbers, best, where="post", color=theme.colours[1], linewidth=1.4)
        axes.plot(numbers, [score for _, score in scored], color=theme.colours[0], marker="o", linestyle="")
        axes.set_xlabel("trial")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(percent))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        dress(axes, theme, grid=True)
    return figure

"""Draw accuracy against the round, and accuracy per class. A method looks the same in every figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from raffed.results.metrics import PERSONAL_ACCURACY, TEST_ACCURACY

from ..runs.comparable import marked
from ..runs.groups import Group, groups
from ..runs.load import Runs, by_run, rows_of, section
from .theme import LIGHT, Theme, dress, look, percent, place, short, spread, style


class Curve(NamedTuple):
    """A metric of one group against the round: mean, lowest and highest value over seeds, as fractions.

    `rounds` may also hold what was spent until a round (budget_curves.py). `steps` is then the last round.
    """

    label: str
    style: int
    rounds: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    steps: float = 0.0


NAMED = 12  # lines of a panel that have their name beside the axes

PANELS = {"Aggregation accuracy": TEST_ACCURACY, "Personalization accuracy": PERSONAL_ACCURACY}


def tasks(runs: Runs) -> dict[tuple[str, str], list[Group]]:
    """Return the groups of each task. A task is a data set and a partition."""
    by_task: dict[tuple[str, str], list[Group]] = {}
    for group in groups(runs):
        by_task.setdefault(group.task, []).append(group)
    return by_task


def curves(runs: Runs, theme: Theme = LIGHT) -> Figure:
    """Draw accuracy against the round, with one row of panels for each task.

    The left panel shows the accuracy of the global model, the right one that of the clients' personal models.

    Args:
        runs: the runs to draw, from `load_runs`.
        theme: the colours of the figure, for a light or a dark background.

    Returns:
        A matplotlib figure that is not registered with pyplot. Save it with `savefig`.
    """
    ordered = list(tasks(runs))
    width, height = 6.4, 4.1
    with style(theme):
        figure = Figure(figsize=(width * len(PANELS), height * len(ordered)))
        for line, task in enumerate(ordered):
            for column, panel in enumerate(PANELS):
                shown = task_curves(runs, task, panel)
                left, bottom = column * width, (len(ordered) - 1 - line) * height
                axes = place(
                    figure, left + 0.7, bottom + 0.6, width - 0.85 - names_beside(shown), height - 1.15
                )
                draw_curves(axes, shown, theme)
                axes.set_title(
                    f"{panel} · {short(' · '.join(task), 40)}", loc="left", pad=12, fontsize=10
                )  # the longest fits
    return figure


def names_beside(shown: Sequence[Curve]) -> float:
    """Return the inches that the names of the lines need to the right of a panel."""
    return 0.45 + 0.075 * max((len(short(curve.label, 30)) for curve in leading(shown)), default=0)


def panel_figure(runs: Runs, task: tuple[str, str], panel: str, theme: Theme = LIGHT) -> Figure | None:
    """Draw one panel of one task. Return None if no run measured it."""
    shown = task_curves(runs, task, panel)
    if not shown:
        return None
    with style(theme):
        figure = Figure(figsize=(6.2, 3.9))
        draw_curves(place(figure, 0.7, 0.55, 6.2 - 0.8 - names_beside(shown), 3.2), shown, theme)
    return figure


def task_curves(runs: Runs, task: tuple[str, str], panel: str) -> list[Curve]:
    """Return the curves of a panel. A method keeps its look in all tasks and panels."""
    return [curve for _, curve in group_curves(runs, task, panel)]


def group_curves(runs: Runs, task: tuple[str, str], panel: str) -> list[tuple[Group, Curve]]:
    """Return each group of a task that has a curve in a panel, with its curve."""
    matrix = runs.matrix(PANELS[panel])
    pairs = (
        (group, _curve(group, marked(runs, group), looks(runs)[group.label], matrix))
        for group in tasks(runs)[task]
    )
    return [(group, curve) for group, curve in pairs if curve is not None]


def looks(runs: Runs) -> dict[str, int]:
    """Map each label to the number of its look. Labels that occur in most tasks get the plainest looks."""

    def compute() -> dict[str, int]:
        shared = Counter(group.label for group in groups(runs))
        return {label: i for i, label in enumerate(sorted(shared, key=lambda label: (-shared[label], label)))}

    numbers: dict[str, int] = runs.once("looks", compute)
    return numbers


def _curve(group: Group, label: str, style: int, matrix: pd.DataFrame) -> Curve | None:
    seeds = matrix[[run for run in group.used if run in matrix]].dropna(how="all")
    if seeds.empty:
        return None
    common = seeds.dropna()
    kept = common if len(common) else seeds
    values, rounds = kept.to_numpy(np.float64), kept.index.to_numpy(np.float64)
    return Curve(label, style, rounds, np.nanmean(values, 1), np.nanmin(values, 1), np.nanmax(values, 1))


def leading(shown: Sequence[Curve]) -> list[Curve]:
    """Return the curves that are named beside the axes: those with the highest last values."""
    best = sorted(shown, key=lambda curve: -float(curve.mean[-1]))[:NAMED]
    return [curve for curve in shown if any(curve is leader for leader in best)]


def draw_curves(axes: Axes, shown: Sequence[Curve], theme: Theme) -> None:
    """Draw lines with bands, in per cent against the round.

    Each method's name is at the end of its line. If there are many, the leading ones are named and the others
    are faint.
    """
    named = leading(shown)
    for curve in shown:
        colour, marker, dash = look(curve.style, theme)
        strong = any(curve is leader for leader in named)
        filled = axes.fill_between(curve.rounds, curve.low, curve.high, color=colour, linewidth=0)
        filled.set(alpha=0.18 if strong else 0.03, label=curve.label)
        drawn = axes.plot(
            curve.rounds, curve.mean, color=colour, marker=marker, linestyle=dash, linewidth=1.7
        )[0]
        drawn.set(markersize=5, markevery=max(1, len(curve.rounds) // 12), label=curve.label)
        if not strong:
            drawn.set(alpha=0.3, linewidth=1, markersize=0, zorder=1)
    dress(axes, theme, grid=True)
    axes.set_xlabel("Round")
    axes.yaxis.set_major_formatter(FuncFormatter(percent))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if shown:
        _name_lines(axes, named, theme)
        axes.set_xlim(right=max(float(curve.rounds[-1]) for curve in shown))
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)


def _name_lines(axes: Axes, shown: Sequence[Curve], theme: Theme) -> None:
    """Write each name beside the end of its line. Names whose lines end close together are moved apart."""
    low, high = axes.get_ylim()
    ends = [float((curve.mean[-1] - low) / (high - low)) for curve in shown]
    gap = min(0.068, 1.0 / len(shown))
    for curve, end, height in zip(shown, ends, spread(ends, gap), strict=True):
        colour, marker, _ = look(curve.style, theme)
        beside = axes.plot(
            [1.005, 1.03], [end, height], linewidth=0.8, color=colour, transform=axes.transAxes
        )
        beside += axes.plot(
            [1.045], [height], marker=marker, markersize=5, color=colour, transform=axes.transAxes
        )
        for line in beside:
            line.set_clip_on(False)
        size = 9 if gap > 0.06 else 7
        axes.text(1.065, height, short(curve.label, 30), transform=axes.transAxes, va="center", fontsize=size)


def class_accuracy(runs: Runs, task: tuple[str, str]) -> pd.DataFrame:
    """Return the accuracy of each group's last measured global model on each class, as a mean over seeds.

    Rows are labels with the best first, and columns are classes.
    """
    rows = runs.once("last classes", lambda: _last_classes(runs))
    means = {}
    for group in tasks(runs)[task]:
        mine = rows[rows["run"].isin(group.used)]
        if not mine.empty:
            means[marked(runs, group)] = mine.groupby("class")["value"].mean()
    frame = pd.DataFrame(means).T.rename(columns=int).sort_index(axis=1)
    return frame.loc[frame.mean(axis=1).sort_values(ascending=False, kind="stable").index]


def _last_classes(runs: Runs) -> pd.DataFrame:
    rows = runs.metrics
    rows = rows[rows_of(rows, TEST_ACCURACY) & rows["class"].notna()]
    return rows[rows["round"] == by_run(rows)["round"].transform("max")]


def class_names(runs: Runs, members: Sequence[Group], classes: Sequence[int]) -> list[str]:
    """Return the names of classes, or their numbers if the runs do not name all of them alike."""
    used = [name for group in members for name in group.used]
    told = [section(runs.files[name], "dataset").get("class_names") for name in used]
    names = told[0] if isinstance(told[0], list) and all(other == told[0] for other in told) else []
    return [str(names[number]) if max(classes) < len(names) else str(number) for number in classes]


def class_heat_map(runs: Runs, task: tuple[str, str], theme: Theme = LIGHT) -> Figure | None:
    """Draw the accuracy of the final global model for each method and class, as a mean over seeds.

    Args:
        runs: the runs to draw, from `load_runs`.
        task: the data set and the partition, as `tasks` lists them.
        theme: the colours of the figure, for a light or a dark background.

    Returns:
        A matplotlib figure, or None if no run of the task measured accuracy per class.
    """
    table = class_accuracy(runs, task)
    if table.empty:
        return None
    methods, classes = table.shape
    with style(theme):
        row = min(0.42, max(0.15, 6.5 / methods))  # of many methods, so that the map fits a screen
        width, height = min(9.0, 0.6 * classes), row * methods
        left = 0.3 + 0.085 * max(len(short(str(label), 30)) for label in table.index)
        names = [
            short(name, 20) for name in class_names(runs, tasks(runs)[task], list(map(int, table.columns)))
        ]
        long = max(map(len, names)) > 5  # such names do not stand beside each other
        bottom = 0.6 + (0.075 * max(map(len, names)) if long else 0)
        figure = Figure(figsize=(left + width + 1.2, height + bottom + 0.25))
        axes = place(figure, left, bottom, width, height)
        image = axes.imshow(table.to_numpy(np.float64), cmap="cividis", vmin=0, vmax=1, aspect="auto")
        size = min(10, 55 * row)
        labels = [short(str(label), 30) for label in table.index]
        axes.set_yticks(range(methods), labels, fontsize=size)
        every = max(1, classes // 20)
        axes.set_xticks(range(0, classes, every), names[::every], rotation=90 if long else 0)
        axes.set_xlabel("Class")
        bar = figure.colorbar(
            image, cax=place(figure, left + width + 0.2, bottom, 0.16, height), format=FuncFormatter(percent)
        )
        bar.outline.set(visible=False)
        for each in (axes, bar.ax):
            dress(each, theme, grid=False)
        if classes <= 20:
            _write_cells(axes, table, min(8, size))
    return figure


def _write_cells(axes: Axes, table: pd.DataFrame, size: float) -> None:
    for (i, j), value in np.ndenumerate(table.to_numpy(np.float64)):
        text = "–" if np.isnan(value) else f"{100 * value:.0f}"
        ink = "#101010" if value > 0.55 else "#f4f4f4"
        axes.text(j, i, text, ha="center", va="center", fontsize=size, color=ink)

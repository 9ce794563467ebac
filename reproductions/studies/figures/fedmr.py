"""Show the study of FedMR's paper."""

from __future__ import annotations

from matplotlib.figure import Figure
from raffed.analysis.figures.theme import LIGHT, Theme, dress, look, place, style
from raffed.analysis.studies import DrawnFigure, Painted, Study, StudyCheck, records

ANGLE = 45.0  # degrees, docs/papers/fedmr.md §E4


def averaged_classifiers(study: Study) -> Painted:
    """Show Fig. 2: the rows of the three local classifiers and of their mean, as arrows."""
    angle = study.value("mean", "class 1", "angle")
    before = study.value("client 1", "class 1", "angle")
    check = StudyCheck(
        "In the mean, the second row is 45° from the direction (−√3/2, ½)",
        f"{angle:.3f}°",
        abs(angle - ANGLE) < 1e-9,
        exact=True,
    )
    caption = (
        "Classifier rows of three clients that each miss one class (a dot: the zero row), and their mean. "
        "The dashed line is the "
        f"direction (−√3/2, ½): {before:.0f}° from client 1's second class, {angle:.0f}° from the mean's."
    )
    return Painted([DrawnFigure(_arrows(study), caption)], [check])


def _arrows(study: Study, theme: Theme = LIGHT) -> Figure:
    panels, side = study.panels(), 2.3
    with style(theme):
        figure = Figure(figsize=(side * len(panels) + 0.3, side + 0.75))
        for number, panel in enumerate(panels):
            axes = place(figure, 0.2 + side * number, 0.35, side - 0.2, side - 0.2)
            axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
            axes.tick_params(labelsize=8)
            for row in records(study.points[study.points["panel"] == panel]):
                colour, _, _ = look(row["label"], theme)
                if row["kind"] == "direction":
                    axes.plot([0, row["x"]], [0, row["y"]], linestyle="--", linewidth=1.4, color=theme.ink)
                elif row["x"] or row["y"]:
                    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2}
                    axes.annotate("", (row["x"], row["y"]), (0, 0), arrowprops=arrow)
                else:
                    axes.plot([0], [0], marker="o", markersize=7, color=colour, zorder=3)
            axes.set_title(panel.capitalize(), loc="left", fontsize=10)
            dress(axes, theme, grid=True)
        for number in range(3):
            figure.text(
                0.3 + number * 0.9,
                0.04,
                f"● class {number + 1}",
                color=look(number, theme)[0],
                fontsize=9,
                transform=figure.dpi_scale_trans,
            )
    return figure

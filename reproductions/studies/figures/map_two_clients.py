"""Show the study of MAP's paper, Fig. 8: two clients with different classes (docs/papers/map.md §E6)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from raffed.analysis.figures.theme import LIGHT, Theme, dress, look, percent, place, style
from raffed.analysis.studies import DrawnFigure, Painted, Study, StudyCheck
from raffed.analysis.table import TextTable

from .drawing import planes


def two_client_demo(study: Study) -> Painted:
    """Fig. 8."""
    methods, models = ("FedAvg", "MAP"), ("downloaded", "personalized", "aggregated")
    shown = study.about["settings"]["shown_round"]
    rows = [[f"{method}, {model}" for model in models] for method in methods]
    places = (
        f"Round {shown}, the first client (classes 0 to 4): features of its own test images, and all proxies "
        "ten times as long, hollow where the client misses the class; of the downloaded model, after "
        "personalization, and of the aggregated model."
    )
    rounds = (
        "Accuracy of each client's model on its own test images. Solid: within a round, from the downloaded "
        "to the personalized model; dotted: between rounds, from there to the next download."
    )
    figures = [DrawnFigure(planes(study, rows, range(10)), places), DrawnFigure(_saw(study, methods), rounds)]
    return Painted(
        figures,
        _demo_checks(study, methods),
        {"Drops and gains, mean over rounds and clients": _drops(study, methods)},
    )


def _clients(study: Study, method: str) -> list[str]:
    rows = study.values
    return list(dict.fromkeys(rows[rows["panel"] == method]["series"]))


def drops(study: Study, method: str) -> dict[str, tuple[pd.Series[float], pd.Series[float]]]:
    """Map each client to its drops and gains, as fractions.

    drop_t = a_{t−1}^pers − a_t^down from round 2 on, and gain_t = a_t^pers − a_t^down.
    """
    by_client = {}
    for client in _clients(study, method):
        down = study.curve(method, client, "accuracy, downloaded")
        personal = study.curve(method, client, "accuracy, personalized")
        by_client[client] = (personal.shift(1) - down).dropna(), personal - down
    return by_client


def _demo_checks(study: Study, methods: Sequence[str]) -> list[StudyCheck]:
    falls = {method: pd.concat([drop for drop, _ in drops(study, method).values()]) for method in methods}
    average = {method: float(fall.mean()) for method, fall in falls.items()}
    positive, of = int((falls["FedAvg"] > 0).sum()), len(falls["FedAvg"])
    norm: dict[str, float] = {}
    for method in methods:
        curves = [
            study.curve(method, client, "norm of missing proxies after training")
            for client in _clients(study, method)
        ]
        norm[method] = float(pd.concat(curves).mean())
    lengths = " against ".join(f"{norm[m]:.3f}" for m in ("MAP", "FedAvg"))
    return [
        StudyCheck(
            "FedAvg: drop_t > 0 in most rounds", f"{positive} of {of} (clients x rounds)", positive > of / 2
        ),
        StudyCheck(
            "MAP's mean drop is smaller",
            " against ".join(f"{100 * average[m]:.1f}" for m in ("MAP", "FedAvg")) + " points",
            average["MAP"] < average["FedAvg"],
        ),
        StudyCheck(
            "Missing proxies after training are longer under MAP", lengths, norm["MAP"] > norm["FedAvg"]
        ),
    ]


def _drops(study: Study, methods: Sequence[str]) -> TextTable:
    out = []
    for method in methods:
        pairs = drops(study, method).values()
        drop, gain = (float(pd.concat(list(part)).mean()) for part in zip(*pairs, strict=True))
        last = [study.value(method, client, "accuracy, aggregated") for client in _clients(study, method)]
        out.append([method, *(_points(value) for value in (drop, gain, sum(last) / len(last)))])
    return TextTable(
        ["Method", "drop, points", "gain, points", "aggregated model at the end, %"],
        out,
        frozenset({"Method"}),
    )


def _saw(study: Study, methods: Sequence[str], theme: Theme = LIGHT) -> Figure:
    """Return the accuracies of all rounds. Round t is drawn from t − 1 to t."""
    with style(theme):
        figure = Figure(figsize=(3.9 * len(methods) + 0.1, 3.0))
        for number, method in enumerate(methods):
            axes = place(figure, 0.6 + 3.9 * number, 0.85, 3.15, 1.85)
            for client, name in enumerate(_clients(study, method)):
                _draw_client(axes, study, (method, name), look(client, theme))
            axes.set_title(method, loc="left", fontsize=10)
            axes.set_xlabel("Round", fontsize=9)
            axes.set_ylim(-0.03, 1.03)
            axes.yaxis.set_major_formatter(FuncFormatter(percent))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            dress(axes, theme, grid=True)
            if not number:
                _draw_legend(axes, theme)
    return figure


def _draw_client(axes: Axes, study: Study, curve: tuple[str, str], shape: tuple[str, str, str]) -> None:
    """Draw the accuracies of one client under one method: solid within a round, dotted between rounds."""
    colour, marker, _ = shape
    down = study.curve(*curve, "accuracy, downloaded")
    personal = study.curve(*curve, "accuracy, personalized")
    for round in down.index:
        within = [down[round], personal[round]]
        axes.plot([round - 1, round], within, color=colour, linewidth=1.6, alpha=0.7)
        if round + 1 in down.index:
            between = [personal[round], down[round + 1]]
            axes.plot([round, round], between, color=colour, linestyle=":", linewidth=1.3, alpha=0.7)
    axes.plot(personal.index, personal, color=colour, marker=marker, markersize=4, linestyle="", alpha=0.7)
    axes.plot([], [], color=colour, marker=marker, markersize=4, linestyle="", label=curve[1])


def _draw_legend(axes: Axes, theme: Theme) -> None:
    axes.plot([], [], color=theme.ink, linewidth=1.6, label="within a round")
    between = "between rounds, to the next download"
    axes.plot([], [], color=theme.ink, linewidth=1.3, linestyle=":", label=between)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0.0, -0.24),
        ncols=4,
        frameon=False,
        fontsize=9,
        labelcolor=theme.ink,
    )


def _points(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}".replace("-", "−")

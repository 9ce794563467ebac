"""Show the studies of MAP's paper, Figs. 5 to 8, with the checks of docs/papers/map.md §E6."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..figures.curves import LIGHT, Theme, dress, look, percent, place, style
from ..table import TextTable
from .drawing import lines, planes
from .study import DrawnFigure, Painted, Study, StudyCheck, values_sheet

COUNTS = (8, 5, 2)
NEAR_ZERO = 0.1  # of the first epoch's accumulated gradient, what "≈ 0" is taken to be
SMALL = 0.25  # of the observed proxies' mean distance, the same for distances


def features_2d(study: Study) -> Painted:
    """Show Fig. 5: features and proxies in two dimensions."""
    rows = [[f"{count} classes, {word}" for count in COUNTS] for word in ("ReLU", "no ReLU")]
    caption = (
        "Test images of the observed classes by their features of two dimensions; lines: the classes' "
        "proxies, ten times "
        "as long; hollow: proxies of classes that the network never saw."
    )
    norms = [
        (study.value(name, "missing", "proxy norm"), study.value(name, "observed", "proxy norm"))
        for row in rows
        for name in row
    ]
    cosines = [study.value(name, "missing", "cosine to the mean feature") for row in rows for name in row]
    shown = ", ".join(f"{m:.2f} {'<' if m < o else '≥'} {o:.2f}" for m, o in norms)
    checks = [
        StudyCheck(
            "Mean norm of missing proxies below that of observed ones, in all six panels",
            shown,
            all(m < o for m, o in norms),
        ),
        StudyCheck(
            "Mean cos(missing proxy, mean feature) below 0, in all six panels",
            _joined(cosines),
            max(cosines) < 0,
        ),
    ]
    for row in rows:
        word = row[0].partition(", ")[2]
        spread = [study.value(name, "observed", "within-class spread") for name in row]
        grows = all(a < b for a, b in itertools.pairwise(spread))
        checks.append(
            StudyCheck(f"Within-class spread grows from 8 to 5 to 2 classes ({word})", _joined(spread), grows)
        )
        angles = [angular_spread(study, name) for name in row]
        wider = all(a < b for a, b in itertools.pairwise(angles))
        checks.append(
            StudyCheck(
                f"The same by the angle to the class mean ({word})", f"{_joined(angles)} degrees", wider
            )
        )
    table = values_sheet(study, ["accuracy", "proxy norm", "within-class spread", "between classes"])
    return Painted([DrawnFigure(planes(study, rows, range(10)), caption)], checks, {"Numbers": table})


def angular_spread(study: Study, panel: str) -> float:
    """Return the mean over classes of the mean angle between a feature and the mean of its class, in degrees.

    This is a spread that does not depend on the scale of the features.
    """
    rows = study.points[(study.points["panel"] == panel) & (study.points["kind"] == "feature")]
    found = []
    for _, own in rows.groupby("label"):
        z = own[["x", "y"]].to_numpy(float)
        middle = z.mean(0)
        lengths = np.linalg.norm(z, axis=1) * np.linalg.norm(middle)
        cosines = (z @ middle)[lengths > 0] / lengths[lengths > 0]
        found.append(float(np.degrees(np.arccos(cosines.clip(-1, 1))).mean()))
    return sum(found) / len(found)


def proxy_statistics(study: Study) -> Painted:
    """Fig. 6."""
    panel = "proxies"
    pairs = ("O-O", "O-M", "M-M")
    groups = {
        "Proxy norm": {name: study.curve(panel, name, "proxy norm") for name in ("observed", "missing")},
        "Accumulated gradient norm": {
            name: study.curve(panel, name, "accumulated gradient norm") for name in ("observed", "missing")
        },
        "Mean distance": {name: study.curve(panel, name, "distance") for name in pairs},
    }
    angles = {"log(1 − cos)": {name: study.curve(panel, name, "log(1 − cos)") for name in pairs}}
    numbers = {"observed": 0, "missing": 1, "O-O": 2, "O-M": 3, "M-M": 4}
    caption = (
        "Proxies of observed (O) and missing (M) classes by epoch: mean norm, norm of an epoch's summed "
        "gradient, mean Euclidean "
        "distances within and between the groups. Epoch 0 is the initial network."
    )
    angle = DrawnFigure(
        lines(angles, "Epoch", looks=numbers), "The same pairs by log(1 − cos) of the angle.", "natural"
    )
    return Painted(
        [DrawnFigure(lines(groups, "Epoch", looks=numbers), caption), angle], _proxy_checks(study, panel)
    )


def _proxy_checks(study: Study, panel: str) -> list[StudyCheck]:
    missing, observed = (study.value(panel, name, "proxy norm") for name in ("missing", "observed"))
    gradient = study.curve(panel, "missing", "accumulated gradient norm")
    others = study.curve(panel, "observed", "accumulated gradient norm")
    first, last = float(gradient.iloc[0]), float(gradient.iloc[-1])
    within, between, own = (study.curve(panel, name, "distance").loc[1:] for name in ("M-M", "O-M", "O-O"))
    below = bool((within < between).all() and (within < own).all())
    ratio = float((within / own).max())
    largest, scale, start = float(within.max()), float(own.iloc[-1]), study.value(panel, "M-M", "distance", 0)
    return [
        StudyCheck(
            (
                "At the end the norm of missing proxies is below that of observed ones (slightly, says the "
                "paper)"
            ),
            f"{missing:.3f} against {observed:.3f}",
            missing < observed,
        ),
        StudyCheck(
            "The gradient of missing proxies is large in epoch 1",
            f"{first:.3f} (observed {float(others.iloc[0]):.3f})",
            first >= float(gradient.max()) - 1e-12,
        ),
        StudyCheck(
            f"… and about 0 at the end (below {NEAR_ZERO:g} of epoch 1's)",
            f"{last:.4f} of {first:.3f}",
            last < NEAR_ZERO * first,
        ),
        StudyCheck("M-M is below O-O and O-M from epoch 1 on", f"largest M-M / O-O: {ratio:.3f}", below),
        StudyCheck(
            f"M-M is about 0 from epoch 1 on (below {SMALL:g} of the last O-O)",
            f"at most {largest:.3f} of {scale:.3f}; {start:.3f} before training",
            largest < SMALL * scale,
        ),
    ]


def targeted_classes(study: Study) -> Painted:
    """Fig. 7."""
    panel = "targeted classes"
    curves = {name: study.curve(panel, name, "accuracy") for name in ("M1", "M2", "M2 among n")}
    caption = (
        "Accuracy on the test images of the first n classes: M1 was trained on these n classes, M2 on all; "
        "M2 predicts among all "
        "classes, or among the n alone."
    )
    checks = []
    for name in ("M2", "M2 among n"):
        gap = curves["M1"] - curves[name]
        shown = ", ".join(f"{100 * value:+.1f}" for value in gap).replace("-", "−")
        checks.append(StudyCheck(f"M1 above {name} for every n", f"{shown} points", bool((gap > 0).all())))
        falls = bool((gap.diff().dropna() < 0).all())
        checks.append(
            StudyCheck(f"The gap between M1 and {name} grows as n falls", f"{shown} points, n rising", falls)
        )
    figure = lines(
        {"Accuracy on the targeted classes": curves},
        "Targeted classes n",
        share=True,
        ticks=list(curves["M1"].index),
    )
    return Painted([DrawnFigure(figure, caption, "natural")], checks)


def two_client_demo(study: Study) -> Painted:
    """Fig. 8."""
    methods, models = ("FedAvg", "MAP"), ("downloaded", "personalized", "aggregated")
    shown = study.about["settings"]["shown_round"]
    rows = [[f"{method}, {model}" for model in models] for method in methods]
    places = (
        f"Round {shown}, the first client (classes 0 to 4): features of its own test images, and all proxies "
        f"ten times as "
        "long, hollow where the client misses the class; of the downloaded model, after personalization, and "
        "of the "
        "aggregated model."
    )
    rounds = (
        "Accuracy of each client's model on its own test images. Solid: within a round, from the downloaded "
        "to the "
        "personalized model; dotted: between rounds, from there to the next download."
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


def drops(study: Study, method: str) -> dict[str, tuple[pd.Series[Any], pd.Series[Any]]]:
    """Map each client to its drops and gains, as fractions.

    drop_t = a_{t−1}^pers − a_t^down from round 2 on, and gain_t = a_t^pers − a_t^down.
    """
    found = {}
    for client in _clients(study, method):
        down = study.curve(method, client, "accuracy, downloaded")
        personal = study.curve(method, client, "accuracy, personalized")
        found[client] = (personal.shift(1) - down).dropna(), personal - down
    return found


def _demo_checks(study: Study, methods: Sequence[str]) -> list[StudyCheck]:
    falls = {method: pd.concat([drop for drop, _ in drops(study, method).values()]) for method in methods}
    average = {method: float(found.mean()) for method, found in falls.items()}
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
        found = drops(study, method).values()
        drop, gain = (float(pd.concat(list(part)).mean()) for part in zip(*found, strict=True))
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
                colour, marker, _ = look(client, theme)
                down = study.curve(method, name, "accuracy, downloaded")
                personal = study.curve(method, name, "accuracy, personalized")
                for round in down.index:
                    axes.plot(
                        [round - 1, round],
                        [down[round], personal[round]],
                        color=colour,
                        linewidth=1.6,
                        alpha=0.7,
                    )
                    if round + 1 in down.index:
                        between = [personal[round], down[round + 1]]
                        axes.plot(
                            [round, round], between, color=colour, linestyle=":", linewidth=1.3, alpha=0.7
                        )
                axes.plot(
                    personal.index,
                    personal,
                    linestyle="",
                    marker=marker,
                    markersize=4,
                    color=colour,
                    alpha=0.7,
                )
                axes.plot([], [], color=colour, marker=marker, markersize=4, linestyle="", label=name)
            axes.set_title(method, loc="left", fontsize=10)
            axes.set_xlabel("Round", fontsize=9)
            axes.set_ylim(-0.03, 1.03)
            axes.yaxis.set_major_formatter(FuncFormatter(percent))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            dress(axes, theme, grid=True)
            if not number:
                axes.plot([], [], color=theme.ink, linewidth=1.6, label="within a round")
                axes.plot(
                    [],
                    [],
                    color=theme.ink,
                    linewidth=1.3,
                    linestyle=":",
                    label="between rounds, to the next download",
                )
                axes.legend(
                    loc="upper left",
                    bbox_to_anchor=(0.0, -0.24),
                    ncols=4,
                    frameon=False,
                    fontsize=9,
                    labelcolor=theme.ink,
                )
    return figure


def _joined(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values).replace("-", "−")


def _points(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}".replace("-", "−")

"""Show the studies of MAP's paper, Figs. 5 to 8, with the checks of docs/papers/map.md §E6."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from raffed.analysis.studies import DrawnFigure, Painted, Study, StudyCheck, values_table

from .drawing import lines, planes

COUNTS = (8, 5, 2)
NEAR_ZERO = 0.1  # of the first epoch's accumulated gradient, what "≈ 0" is taken to be
SMALL = 0.25  # of the observed proxies' mean distance, the same for distances


def features_2d(study: Study) -> Painted:
    """Show Fig. 5: features and proxies in two dimensions."""
    rows = [[f"{count} classes, {word}" for count in COUNTS] for word in ("ReLU", "no ReLU")]
    caption = (
        "Test images of the observed classes by their features of two dimensions; lines: the classes' "
        "proxies, ten times as long; hollow: proxies of classes that the network never saw."
    )
    table = values_table(study, ["accuracy", "proxy norm", "within-class spread", "between classes"])
    figure = DrawnFigure(planes(study, rows, range(10)), caption)
    return Painted([figure], _feature_checks(study, rows), {"Numbers": table})


def _feature_checks(study: Study, rows: Sequence[Sequence[str]]) -> list[StudyCheck]:
    """Check what the paper says of Fig. 5. Each row of panels has fewer and fewer classes."""
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
    return checks


def angular_spread(study: Study, panel: str) -> float:
    """Return the mean over classes of the mean angle between a feature and the mean of its class, in degrees.

    This is a spread that does not depend on the scale of the features.
    """
    rows = study.points[(study.points["panel"] == panel) & (study.points["kind"] == "feature")]
    angles = []
    for _, members in rows.groupby("label"):
        z = members[["x", "y"]].to_numpy(float)
        middle = z.mean(0)
        lengths = np.linalg.norm(z, axis=1) * np.linalg.norm(middle)
        cosines = (z @ middle)[lengths > 0] / lengths[lengths > 0]
        angles.append(float(np.degrees(np.arccos(cosines.clip(-1, 1))).mean()))
    return sum(angles) / len(angles)


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
        "gradient, mean Euclidean distances within and between the groups. Epoch 0 is the initial network."
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
    within, between, seen = (study.curve(panel, name, "distance").loc[1:] for name in ("M-M", "O-M", "O-O"))
    below = bool((within < between).all() and (within < seen).all())
    ratio = float((within / seen).max())
    most, scale, start = float(within.max()), float(seen.iloc[-1]), study.value(panel, "M-M", "distance", 0)
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
            f"at most {most:.3f} of {scale:.3f}; {start:.3f} before training",
            most < SMALL * scale,
        ),
    ]


def targeted_classes(study: Study) -> Painted:
    """Fig. 7."""
    panel = "targeted classes"
    curves = {name: study.curve(panel, name, "accuracy") for name in ("M1", "M2", "M2 among n")}
    caption = (
        "Accuracy on the test images of the first n classes: M1 was trained on these n classes, M2 on all; "
        "M2 predicts among all classes, or among the n alone."
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


def _joined(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values).replace("-", "−")

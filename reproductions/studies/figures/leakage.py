"""Show the study of gradient leakage: MpFedcon's Fig. 10, and the defendability of its Table 4.

reproductions/studies/leakage.py computes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from raffed.analysis.figures.theme import LIGHT, Theme, dress, look, place, plain_decades, spread, style
from raffed.analysis.studies import DrawnFigure, Painted, Study, StudyCheck, records
from raffed.analysis.table import TextTable

CAP = 10.0  # Plots end here. Attacks that diverge reach 1e16.
RECOGNISABLE, DEFENDED = 0.03, 0.06
MARKS = ("mse@10", "mse@50", "mse@100", "mse@300")
RULES = ("attack", "message", "bias", "sign", "inner product")
NOISES = ("Gaussian 1e-4", "Gaussian 1e-2", "Laplace 1e-4", "Laplace 1e-2")
PRINTED = {noise: "yes" if noise.endswith("1e-2") else "no" for noise in NOISES}  # Table 4's marks
MEANINGS = ("variance", "scale")
CURVES = (
    "{}: median error of the reconstruction over {} images, capped at 10; dotted: 0.03, below which an image "
    "can be recognised. "
    "Left: attacks. Right: DLG under noise."
)
PICTURES = (
    "{}: originals, and what each attack made of them (cut to [0, 1]). known_head sees no gradient of the "
    "head but has its "
    "weights, as the server has in round 0."
)
IMAGE, LABEL = 0.8, 1.5  # inches: a picture's side, and the names to its left


def leakage(study: Study) -> Painted:
    """Return the curves of the error, the pictures, a table of attacks, and Table 4's defendability.

    The defendability is given for both readings of the size of the noise.
    """
    figures, tables, checks = [], {}, []
    for panel in study.panels():
        names = list(dict.fromkeys(study.values[study.values["panel"] == panel]["series"]))
        noisy = [name for name in names if name.endswith(")")]
        attacks = [name for name in names if name not in noisy]
        figures += [
            DrawnFigure(
                _curves(study, panel, [attacks, ["DLG", *noisy]]),
                CURVES.format(panel, study.about["settings"]["images"]),
                "natural",
            ),
            DrawnFigure(_pictures(study, panel), PICTURES.format(panel), "natural"),
        ]
        tables[f"Attacks on {panel}"] = _attacks(study, panel, names)
        tables[f"Does the noise defend? {panel}"] = _noises(study, panel)
        checks += _checks(study, panel, attacks)
    return Painted(figures, checks, tables)


def _number(study: Study, panel: str, series: str, metric: str) -> float | None:
    try:
        return float(study.value(panel, series, metric))
    except KeyError:
        return None


def _shown(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return "> 1000" if value > 1000 else f"{value:.{digits}g}".replace("-", "−")


def _attacks(study: Study, panel: str, names: Sequence[str]) -> TextTable:
    metrics = [*MARKS, "mse", "psnr", "ssim", "recognised", "diverged", *(f"label {rule}" for rule in RULES)]
    titles = [
        "Attack",
        *(f"MSE at {mark.removeprefix('mse@')}" for mark in MARKS),
        "at the end",
        "PSNR dB",
        "SSIM",
    ]
    titles += ["MSE < 0.03", "Diverged", "Label: attack", *(f"by {rule}" for rule in RULES[1:])]
    lines = [[name, *(_shown(_number(study, panel, name, metric)) for metric in metrics)] for name in names]
    return TextTable(titles, lines, frozenset({"Attack"}))


def _noises(study: Study, panel: str) -> TextTable:
    """Return a row for each noise.

    For both readings of its size, it gives the median final error, and whether that is above 0.06.
    """
    lines = []
    for noise in NOISES:
        errors = [_number(study, panel, f"{noise} ({meaning})", "mse") for meaning in MEANINGS]
        cells = [cell for error in errors for cell in (_shown(error), _defends(error))]
        lines.append([noise, *cells, PRINTED[noise]])
    rows = [name for name in study.values["series"].unique() if str(name).startswith("MpFedcon")]
    for name, printed in [("DLG", "n/a"), ("known_head", "–"), *((row, "yes") for row in rows)]:
        error = _number(study, panel, name, "mse")
        lines.append([{"DLG": "none (DLG)"}.get(name, name), _shown(error), _defends(error), "", "", printed])
    titles = [
        "Defence",
        "MSE, size is the variance",
        "defends",
        "MSE, size is the scale",
        "defends ",
        "paper",
    ]
    return TextTable(titles, lines, frozenset({"Defence", "defends", "defends ", "paper"}))


def _defends(error: float | None) -> str:
    return "–" if error is None else "yes" if error > DEFENDED else "no"


def _checks(study: Study, panel: str, attacks: Sequence[str]) -> list[StudyCheck]:
    def error(name: str) -> float:
        return float(study.value(panel, name, "mse"))

    where, checks = f" ({panel})", []
    both = [error("DLG"), error("known_head")]
    checks.append(
        StudyCheck(
            f"Who has the head's weights recognises the image with and without the head's gradient{where}",
            f"DLG {_shown(both[0])}, known_head {_shown(both[1])}",
            max(both) < RECOGNISABLE,
        )
    )
    pairs = [name for name in attacks if name.startswith("MpFedcon")]
    least = min(error(name) for name in pairs)
    checks.append(
        StudyCheck(
            f"Under a head drawn at random no image is recovered, cl/at of {len(pairs)} pairs{where}",
            f"smallest median MSE {_shown(least)}",
            least > DEFENDED,
        )
    )
    for meaning in MEANINGS:
        marks = {noise: _defends(error(f"{noise} ({meaning})")) for noise in NOISES}
        measured = ", ".join(f"{noise}: {_shown(error(f'{noise} ({meaning})'))}" for noise in NOISES)
        claim = f"Table 4's marks, sizes read as the {meaning}: 1e-4 does not defend, 1e-2 does{where}"
        checks.append(StudyCheck(claim, measured, marks == PRINTED))
    return checks


def _curves(study: Study, panel: str, groups: Sequence[Sequence[str]], theme: Theme = LIGHT) -> Figure:
    width, height, beside = 4.0, 3.2, 2.0
    with style(theme):
        figure = Figure(figsize=((width + beside + 0.7) * len(groups), height + 0.9))
        for number, names in enumerate(groups):
            axes = place(figure, 0.7 + number * (width + beside + 0.7), 0.55, width, height)
            axes.set(yscale="log", ylim=(1e-4, CAP * 1.3))
            plain_decades(axes.yaxis)
            ends = []
            for at, name in enumerate(names):
                curve = study.curve(panel, name, "trace").replace(np.inf, CAP).clip(1e-4, CAP)
                colour, marker, dash = look(at, theme)
                axes.plot(
                    curve.index,
                    curve,
                    color=colour,
                    linestyle=dash,
                    linewidth=1.6,
                    marker=marker,
                    markersize=4,
                    markevery=max(1, len(curve) // 8),
                )
                ends.append(float(curve.iloc[-1]))
            axes.axhline(RECOGNISABLE, color=theme.ink, linestyle=":", linewidth=1)
            low, high = (np.log10(limit) for limit in axes.get_ylim())
            heights = [(np.log10(end) - low) / (high - low) for end in ends]
            for at, (name, y) in enumerate(zip(names, spread(heights, 0.068), strict=True)):
                colour, marker, _ = look(at, theme)
                mark = axes.plot(
                    [1.03], [y], marker=marker, markersize=5, color=colour, transform=axes.transAxes
                )[0]
                mark.set_clip_on(False)
                axes.text(1.06, y, name, transform=axes.transAxes, va="center", fontsize=8)
            axes.set_xlabel("Iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.minorticks_off()
            axes.set_title("Median MSE", loc="left", pad=8)
            dress(axes, theme, grid=True)
    return figure


def _pictures(study: Study, panel: str, theme: Theme = LIGHT) -> Figure:
    """Draw the images, with a row for each attack and a column for each image."""
    shown = study.images[study.images["panel"] == panel]
    rows, columns = list(dict.fromkeys(shown["row"])), list(dict.fromkeys(shown["column"]))
    step = IMAGE + 0.06
    with style(theme):
        figure = Figure(figsize=(LABEL + step * len(columns) + 0.1, step * len(rows) + 0.1))
        for image in records(shown):
            line, column = rows.index(image["row"]), columns.index(image["column"])
            axes = place(figure, LABEL + step * column, step * (len(rows) - 1 - line) + 0.05, IMAGE, IMAGE)
            pixels = (
                np.asarray(image["pixels"])
                .reshape(image["channels"], image["height"], image["width"])
                .transpose(1, 2, 0)
            )
            axes.imshow(pixels.squeeze(), vmin=0, vmax=1, cmap="gray", interpolation="nearest")
            axes.set_axis_off()
        for line, row in enumerate(rows):
            height = (step * (len(rows) - 1 - line) + 0.05 + IMAGE / 2) / (step * len(rows) + 0.1)
            figure.text(0.08 / figure.get_size_inches()[0], height, row, va="center", fontsize=9)
    return figure

"""Show the studies of MpFedcon's paper, Figs. 3 and 4.

docs/papers/mpfedcon.md names no check for them, so their numbers are shown without a verdict.
"""

from __future__ import annotations

from raffed.analysis.studies import DrawnFigure, Painted, Study, values_table
from raffed.analysis.table import TextTable

from .drawing import lines, planes

DISTANCE = "mean squared distance"


def solo_drift(study: Study) -> Painted:
    """Fig. 3."""
    panels = study.panels()
    names = ("SOLO", "FedAvg", "FedAvg, trained locally")
    accuracy = {panel: {name: study.curve(panel, name, "accuracy") for name in names} for panel in panels}
    whose = {"To the aggregated model": "aggregated", "To the party's own FedAvg model": "the party's own"}
    gaps = {
        heading: {panel: study.curve(panel, what, DISTANCE) for panel in panels}
        for heading, what in whose.items()
    }
    told = (
        "Mean accuracy of a round's participants on their own test images: trained alone, the aggregated "
        "model of FedAvg, and that model after their own training. One panel a number of local epochs E."
    )
    apart = (
        "Squared distance of a participant's SOLO model to FedAvg's, per parameter, mean over participants: "
        "to the "
        "aggregated model, and to the model that the same participant trained in the same round of FedAvg."
    )
    figures = [
        DrawnFigure(lines(accuracy, "Round", share=True), told),
        DrawnFigure(lines(gaps, "Round"), apart),
    ]
    lines_ = [
        [
            panel,
            *(f"{100 * study.value(panel, name, 'accuracy'):.1f}" for name in names),
            f"{study.value(panel, 'aggregated', DISTANCE):.3g}".replace("-", "−"),
        ]
        for panel in panels
    ]
    titles = ["Local epochs", *(f"{name}, %" for name in names), f"{DISTANCE} to the aggregated model"]
    return Painted(figures, [], {"Last round": TextTable(titles, lines_, frozenset({"Local epochs"}))})


def features_tsne(study: Study) -> Painted:
    """Fig. 4."""
    panels = study.panels()
    caption = (
        "Representations z of all parties' test images, embedded by t-SNE; colours are classes. Distances "
        "between clusters of such a picture mean little: the table has those of z itself."
    )
    table = values_table(study, ["intra-class distance", "inter-class distance", "intra / inter", "accuracy"])
    return Painted(
        [DrawnFigure(planes(study, [panels], range(10)), caption)],
        [],
        {"Distances of z, and accuracy on the images shown": table},
    )

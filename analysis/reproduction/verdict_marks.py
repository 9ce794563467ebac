"""The sign, the colour and the meaning of every verdict. A sign stands beside each colour."""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """How a verdict is shown.

    Attributes:
        sign: one character; empty if nothing is judged.
        css: the class of the cell on a page, which has a colour for light and one for dark schemes.
        meaning: the verdict in a few words, for the legend.
    """

    sign: str
    css: str
    meaning: str


MARKS = {
    "agrees": Mark("✓", "good", "within the tolerance or our 95 % interval"),
    "higher": Mark("↑", "above", "ours is above the printed number"),
    "lower": Mark("↓", "below", "ours is below the printed number"),
    "differs": Mark("✗", "below", "further away than two bands of the checker"),
    "open": Mark("≈", "open", "between one and two bands of the checker"),
    "too few seeds": Mark("?", "open", "two seeds are too few for a band of the checker"),
    "same order": Mark("✓", "good", "the difference has the sign of the paper's"),
    "opposite order": Mark("✗", "below", "the difference has the other sign"),
    "not separated": Mark("≈", "open", "our 95 % interval includes 0"),
    "one seed": Mark("?", "open", "one seed is too few for an interval"),
    "two seeds": Mark("?", "open", "two seeds are too few for an interval"),
    "no claim": Mark("○", "plain", "the paper's own difference is below the tolerance"),
    "no test": Mark("○", "plain", "the method's terms are below 5 % of the cross-entropy"),
    "no target": Mark("○", "plain", "ours is not held to what is printed"),
    "runs": Mark("✓", "plain", "the cell runs"),
    "not printed": Mark("", "plain", "the paper prints no number"),
    "baseline": Mark("", "plain", "the row with which the others are compared"),
    "not run": Mark("", "absent", "no finished run"),
    "–": Mark("", "plain", "not judged"),
}
FEW_SEEDS = {1: "one seed", 2: "two seeds"}  # too few for an interval


def mark(word: str) -> Mark:
    """Return how a verdict is shown."""
    return MARKS[word]

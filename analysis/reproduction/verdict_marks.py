"""The sign, the colour and the meaning of every verdict. A sign stands beside each colour."""

from __future__ import annotations

from typing import NamedTuple


class VerdictMark(NamedTuple):
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
    "agrees": VerdictMark(
        "✓", "good", "the whole 90 % interval of the difference to the printed number is within the margin"
    ),
    "differs": VerdictMark("✗", "below", "the 95 % interval of the difference is outside the margin"),
    "too few seeds": VerdictMark("?", "open", "the seeds decide neither that it agrees nor that it differs"),
    "same order": VerdictMark("✓", "good", "the difference has the sign of the paper's"),
    "opposite order": VerdictMark("✗", "below", "the difference has the other sign"),
    "not separated": VerdictMark("≈", "open", "our 95 % interval includes 0"),
    "no claim": VerdictMark("○", "plain", "the paper's own difference is below the margin"),
    "settings missing": VerdictMark("?", "open", "some settings, of which ours is the best, were not run"),
    "diverged": VerdictMark(
        "!", "apart", "training diverged in some of the runs behind it, so their mean is no result"
    ),
    "no test": VerdictMark("○", "plain", "the method's terms are below 5 % of the cross-entropy"),
    "no target": VerdictMark("○", "plain", "ours is not held to what is printed"),
    "runs": VerdictMark("✓", "plain", "the cell runs"),
    "not printed": VerdictMark("", "plain", "no number is printed"),
    "baseline": VerdictMark("", "plain", "the row with which the others are compared"),
    "not comparable": VerdictMark("≠", "apart", "its runs differ from the others in more than the method"),
    "not measured": VerdictMark("", "absent", "its runs have no values of the measure"),
    "not run": VerdictMark("", "absent", "no finished run"),
    "–": VerdictMark("", "plain", "not judged"),
}
SETTINGS_MISSING = "settings missing"


def mark(word: str) -> VerdictMark:
    """Return how a verdict is shown."""
    return MARKS[word]

"""Make the rows of the measure `term_strength`: of each participant, and the medians over participants."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from raffed.core.measures.term_strength import ALL
from raffed.results.metrics import TERM_STRENGTH
from raffed.results.row import Row
from raffed.runtime.reports import Report


def strength_rows(number: int, reports: Sequence[Report]) -> list[Row]:
    """Return the rows of an evaluated round; none if nobody measured.

    The common row is the median and leaves out NaN. A mean would be decided by a client whose cross-entropy
    is all but 0 after training, as with a single class, where a ratio can be 10^10.

    Args:
        number: Number of rounds done.
        reports: What the participants reported.
    """
    rows = []
    for model, term in dict.fromkeys(key for r in reports for key in r.scores.strengths):
        metric, part = TERM_STRENGTH[model], "" if term == ALL else term
        own = ((r.client, r.scores.strengths.get((model, term))) for r in reports)
        found = [(client, one) for client, one in own if one is not None]
        rows += [metric.row(number, one.value, part=part, client=client, n=one.n) for client, one in found]
        known = [one.value for _, one in found if not math.isnan(one.value)]
        middle = statistics.median(known) if known else math.nan
        rows.append(metric.row(number, middle, part=part, n=len(known)))
    return rows


__all__ = ["strength_rows"]

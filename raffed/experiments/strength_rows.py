"""Make the rows of the measure `term_strength`: of each participant, and the means over participants."""

from __future__ import annotations

import math
from collections.abc import Sequence

from raffed.core.measures.term_strength import ALL
from raffed.results.other_metrics import TERM_STRENGTH
from raffed.results.row import Row
from raffed.runtime.reports import Report


def strength_rows(number: int, reports: Sequence[Report]) -> list[Row]:
    """Return the rows of an evaluated round; none if nobody measured.

    The mean is unweighted and leaves out NaN.

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
        mean = sum(known) / len(known) if known else math.nan
        rows.append(metric.row(number, mean, part=part, n=len(known)))
    return rows


__all__ = ["strength_rows"]

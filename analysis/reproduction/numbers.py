"""Write the numbers of a table: a mean, and its interval from three seeds on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..metrics.intervals import reported_interval


def shown(values: Iterable[float], digits: int, sign: bool = False) -> str:
    """Write mean ± half width of the 95 % interval, which needs three values.

    A missing value is a dash, and an infinite one is `never`, with the number of seeds if not all are.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "–"
    if never := sum(map(math.isinf, known)):
        return "never" if never == len(known) else f"never in {never} of {len(known)}"
    mean, half = sum(known) / len(known), reported_interval(known)
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return text.replace("-", "−") if math.isnan(half) else f"{text.replace('-', '−')} ± {half:.{digits}f}"

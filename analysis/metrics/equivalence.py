"""Whether a mean over seeds agrees with a printed number: the interval of their difference is in a margin.

The printed number is m ± s of n runs and ours r ± t of k runs. The difference r − m has Welch's interval,
with the standard error √(t²/k + s²/n) and the degrees of freedom of Satterthwaite. Where n is unknown, or s
is not printed, s is left out, and k − 1 degrees of freedom remain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from .compare import NO_SPREAD
from .intervals import t_quantile

AGREES, DIFFERS, TOO_FEW = "agrees", "differs", "too few seeds"
CLOSE, FAR = 0.90, 0.95  # which interval must lie within the margin to agree, and outside it to differ


class PrintedNumber(NamedTuple):
    """A printed number.

    Attributes:
        value: the number m; NaN if none is printed.
        spread: its deviation s over runs; NaN if none is printed.
        runs: the number n of runs behind it; 0 if it is unknown.
    """

    value: float = math.nan
    spread: float = math.nan
    runs: int = 0


class MeanDifference(NamedTuple):
    """Ours minus the printed number, with its standard error and degrees of freedom."""

    mean: float
    error: float
    freedom: float

    def interval(self, inside: float = CLOSE) -> tuple[float, float]:
        """Return the interval that holds the true difference with probability `inside`."""
        half = t_quantile(self.freedom, inside) * self.error if self.error else 0.0
        return self.mean - half, self.mean + half


def difference(ours: Sequence[float], printed: PrintedNumber) -> MeanDifference | None:
    """Return ours minus the printed number; None for fewer than two seeds or values that are not finite."""
    if len(ours) < 2 or not all(map(math.isfinite, (*ours, printed.value))):
        return None
    shares = [(statistics.variance(ours) / len(ours), len(ours) - 1)]
    if printed.runs > 1 and math.isfinite(printed.spread):
        shares.append((printed.spread**2 / printed.runs, printed.runs - 1))
    square = sum(share for share, _ in shares)
    weights = sum(share**2 / freedom for share, freedom in shares)
    freedom = square**2 / weights if weights else float(len(ours) - 1)
    return MeanDifference(statistics.fmean(ours) - printed.value, math.sqrt(square), freedom)


def agreement(ours: Sequence[float], printed: PrintedNumber, margin: float, *, counted: bool = False) -> str:
    """Return whether our mean agrees with the printed number.

    It agrees if the whole 90 % interval of the difference lies within ± margin, which is two one-sided tests
    at 5 %. It differs if the 95 % interval lies outside. In all other cases there are too few seeds to say.

    Args:
        ours: Our values, one for each seed.
        printed: The printed number.
        margin: The largest difference that means the same, above 0.
        counted: Whether values are counts, which may be exactly alike in all seeds, also infinite: no seed
            reaches what is counted. Accuracies that are alike in all seeds, on both sides, have no interval.
    """
    if counted and len(ours) > 1 and all(map(math.isinf, ours)):
        return DIFFERS
    gap = difference(ours, printed)
    if gap is None or (gap.error <= NO_SPREAD and not counted):
        return TOO_FEW
    low, high = gap.interval(CLOSE)
    if -margin <= low and high <= margin:
        return AGREES
    low, high = gap.interval(FAR)
    return DIFFERS if low > margin or high < -margin else TOO_FEW

"""The 95 % confidence interval of a mean over seeds, and the probabilities of Student's t behind it.

The functions come from `scipy.special`. `scipy.stats.t` calls the same functions, but its import takes
several times as long. SciPy is imported at the first call: `import raffed.analysis` does not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

LEAST_SEEDS = 3  # from two, the factor t is 12.7, and the interval says nothing


def t_interval(values: Sequence[float]) -> float:
    """Half width of the 95 % confidence interval of the mean, t·s/√n with n − 1 degrees of freedom.

    Returns NaN for fewer than two values, and if one of them is not finite.
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


@cache
def t_quantile(freedom: float, inside: float = 0.95) -> float:
    """The t with P(|T| ≤ t) = `inside` for Student's T with `freedom` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + inside) / 2))


def detectable(spread: float, count: int, power: float = 0.8) -> float:
    """Return the difference that a two-sided paired t-test at 5 % sees with the probability `power`.

    It is δ with P(T > t) = `power` for a noncentral T with n − 1 degrees of freedom and the noncentrality
    δ √n / s, where t is the critical value. The other tail, of a difference of the wrong sign, is left out.

    Args:
        spread: Standard deviation s of the differences of a pair.
        count: Number n of pairs, at least 2.
        power: The probability.
    """
    from scipy.special import nctdtrinc

    shift = nctdtrinc(count - 1, 1 - power, t_quantile(count - 1))
    return float(shift) * spread / math.sqrt(count)


def t_tail(t: float, freedom: int) -> float:
    """P(|T| ≥ t) for t ≥ 0 and Student's T with `freedom` degrees of freedom."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -t))


def reported_interval(values: Sequence[float]) -> float:
    """Return `t_interval`, or NaN for fewer than three values, which are too few to report an interval."""
    return t_interval(values) if len(values) >= LEAST_SEEDS else math.nan

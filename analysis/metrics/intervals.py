"""The 95 % confidence interval of a mean over seeds, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def t_interval(values: Sequence[float]) -> float:
    """Half width of the 95 % confidence interval of the mean, t·s/√n with n - 1 degrees of freedom; NaN
    if n < 2.
    """
    n = len(values)
    if n < 2:
        return math.nan
    return t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


def t_quantile(freedom: int, inside: float = 0.95) -> float:
    """The t with P(|T| <= t) = `inside` for Student's T with `freedom` degrees of freedom, to 12 digits.

    Bisection of the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4, with θ = atan(t/√ν).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        theta = (low + high) / 2
        low, high = (theta, high) if _t_inside(theta, freedom) < inside else (low, theta)
    return math.sqrt(freedom) * math.tan(low)


def _t_inside(theta: float, freedom: int) -> float:
    odd = freedom % 2
    term = math.sin(theta) * (math.cos(theta) if odd else 1.0)
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= math.cos(theta) ** 2 * (k - 1) / k
        total += term
    return 2 / math.pi * (theta + total) if odd else total


def t_tail(t: float, freedom: int) -> float:
    """P(|T| >= t) for Student's T with `freedom` degrees of freedom, t >= 0."""
    return max(0.0, 1.0 - _t_inside(math.atan(t / math.sqrt(freedom)), freedom))

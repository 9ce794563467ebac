"""Adjust p-values for the number of tests that were made together."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of the given ones.

    With m p-values in ascending order, p̃_(i) = max over j ≤ i of min(1, (m − j + 1) p_(j)). Rejecting every
    hypothesis with p̃ ≤ 0.05 rejects any true one with a probability of at most 0.05, whatever the dependence
    between the tests (Holm 1979, "A simple sequentially rejective multiple test procedure").

    Args:
        p_values: Fractions in [0, 1]. NaN stands for a test that could not be made. It stays NaN and does
            not count.
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for before, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - before) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p-values, in the order of the given ones.

    Calling every p̃ ≤ 0.05 a difference is wrong in at most 5 % of these calls on average, if the tests are
    independent or positively dependent (Benjamini and Hochberg 1995). It misses fewer differences than Holm's
    method, which keeps even one wrong call below 5 %.

    Args:
        p_values: Fractions in [0, 1]. NaN stands for a test that could not be made. It stays NaN and does
            not count.
    """
    from scipy.stats import false_discovery_control

    known = [p for p in p_values if not math.isnan(p)]
    adjusted = iter(false_discovery_control(known).tolist() if known else [])
    return [math.nan if math.isnan(p) else float(next(adjusted)) for p in p_values]

"""Sums of floats with the same bits on every version of Python."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable


def plain_sum(values: Iterable[float]) -> float:
    """Add floats from left to right, each sum rounded once.

    Python's own `sum` does so up to version 3.11. From 3.12 on it makes up for rounding errors, so its last
    bits are others. What ends in a weight or in a metric row is therefore added here, or by `math.fsum`.
    """
    return functools.reduce(operator.add, values, 0.0)

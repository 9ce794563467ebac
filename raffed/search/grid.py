"""Turn axes into search spaces for Ray Tune's searchers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ray import tune
from ray.tune.search.sample import Domain

from raffed.config.search_axis import NumberRange
from raffed.config.validation import Value
from raffed.search.axes import axis_of


def continuous(axes: Mapping[str, Sequence[Value] | NumberRange]) -> dict[str, Domain]:
    """Return the ranges that axes span.

    A list of values spans a range that is log-uniform if all are positive floats and spread by a factor of 10
    or more. It is uniform for other floats. Every other list is a choice among its values.
    """
    return {
        name: _domain(axis if isinstance(axis, NumberRange) else axis_of(axis)) for name, axis in axes.items()
    }


def _domain(axis: Sequence[Value] | NumberRange) -> Domain:
    if isinstance(axis, NumberRange):
        return _range(axis.low, axis.high, axis.log, axis.whole)
    numbers = [value for value in axis if isinstance(value, float)]
    if len(axis) < 2 or len(numbers) < len(axis):
        chosen: Domain = tune.choice(list(axis))
        return chosen
    low, high = min(numbers), max(numbers)
    return _range(low, high, low > 0 and math.log10(high / low) >= 1 - 1e-9, whole=False)


def _range(low: float, high: float, log: bool, whole: bool) -> Domain:
    if whole:
        among: Domain = (
            tune.lograndint(int(low), int(high) + 1) if log else tune.randint(int(low), int(high) + 1)
        )
        return among
    spread: Domain = tune.loguniform(low, high) if log else tune.uniform(low, high)
    return spread

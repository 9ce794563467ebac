"""Turn grids into search spaces for Ray Tune's searchers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ray import tune
from ray.tune.search.sample import Domain

from raffed.config.validation import Value
from raffed.tune_spaces import Space, values


def continuous(space: Space) -> dict[str, Domain]:
    """Return the ranges that a grid spans.

    A range is log-uniform if all values are positive floats and spread by a factor of 10 or more. It is
    uniform for other floats. Everything else is a choice among the values.
    """
    return {keyword: _range(values(space, keyword)) for keyword in space}


def _range(among: Sequence[Value]) -> Domain:
    numbers = [value for value in among if isinstance(value, float)]
    if len(among) < 2 or len(numbers) < len(among):
        chosen: Domain = tune.choice(list(among))
        return chosen
    low, high = min(numbers), max(numbers)
    if low > 0 and math.log10(high / low) >= 1 - 1e-9:
        spread: Domain = tune.loguniform(low, high)
        return spread
    even: Domain = tune.uniform(low, high)
    return even

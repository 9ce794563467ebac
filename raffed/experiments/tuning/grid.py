"""Turn grids into search spaces for Ray Tune's searchers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ray import tune

from raffed.tune_spaces import values


def continuous(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ranges that a grid spans.

    A range is log-uniform if all values are positive floats and spread by a factor of 10 or more. It is
    uniform for other floats. Everything else is a choice among the values.
    """
    return {keyword: _range(values(space, keyword)) for keyword in space}


def _range(among: Sequence[Any]) -> Any:
    if len(among) < 2 or not all(isinstance(value, float) for value in among):
        return tune.choice(list(among))
    low, high = min(among), max(among)
    if low > 0 and math.log10(high / low) >= 1 - 1e-9:
        return tune.loguniform(low, high)
    return tune.uniform(low, high)

"""Grids as what Ray Tune's searchers draw from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ray import tune

from raffed.tune_spaces import values


def continuous(space: Mapping[str, Any]) -> dict[str, Any]:
    """The ranges that a grid spans: log-uniform where all values are positive floats a factor of 10 or more
    apart, uniform for other floats, and a choice among the values of everything else.
    """
    return {keyword: _range(values(space, keyword)) for keyword in space}


def _range(among: Sequence[Any]) -> Any:
    if len(among) < 2 or not all(isinstance(value, float) for value in among):
        return tune.choice(list(among))
    low, high = min(among), max(among)
    if low > 0 and math.log10(high / low) >= 1 - 1e-9:
        return tune.loguniform(low, high)
    return tune.uniform(low, high)

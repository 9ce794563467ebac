"""What is searched for each method: one module a method, whose SPACE is a Ray Tune space keyed by the factory's keywords.

A method without hyper-parameters has an empty SPACE. Spaces are grids: the same points whoever searches, so that methods can
be given equal budgets. `continuous` is what a searcher that models the objective draws from instead.

    python -m tune_spaces fedmr --dataset digits --split p10c2 --out sweeps/fedmr      # = raffed tune --method fedmr ...
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ray import tune

from raffed.core.errors import UsageError
from raffed.experiments.names import no_space

LARGEST_GRID = 100_000  # settings, every one of which is checked before the first is tried
Space = dict[str, Any]
Point = dict[str, Any]


def has_space(method: str) -> bool:
    """Whether there is a module for a method."""
    return importlib.util.find_spec(f"{__name__}.{method}") is not None


def load_space(method: str) -> Space:
    """The SPACE of a method; a UsageError says which file to write where there is none."""
    name = f"{__name__}.{method}"
    try:
        found: Space = importlib.import_module(name).SPACE
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError(no_space(method)) from error
    return dict(found)


def values(space: Mapping[str, Any], keyword: str) -> list[Any]:
    """The values of one axis of a grid; a UsageError for anything that is not `tune.grid_search`."""
    axis = space[keyword]
    if not isinstance(axis, Mapping) or set(axis) != {"grid_search"}:
        raise UsageError(f"{keyword} = {axis!r}: wanted tune.grid_search([...])")
    return list(axis["grid_search"])


def points(space: Mapping[str, Any]) -> list[Point]:
    """Every setting of a grid, the last keyword changing fastest; one empty setting for an empty space."""
    axes = [values(space, keyword) for keyword in space]
    size = math.prod(len(axis) for axis in axes)  # `map` is the module of a method here
    if size > LARGEST_GRID:
        names = ", ".join(space)
        raise UsageError(f"a grid over {names} has {size:,} settings, wanted at most {LARGEST_GRID:,}; leave values out")
    return [dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*axes)]


def continuous(space: Mapping[str, Any]) -> Space:
    """The ranges that a grid spans: log-uniform where all values are positive floats a factor of 10 or more apart, uniform
    for other floats, and a choice among the values of everything else."""
    return {keyword: _range(values(space, keyword)) for keyword in space}


def _range(among: Sequence[Any]) -> Any:
    if len(among) < 2 or not all(isinstance(value, float) for value in among):
        return tune.choice(list(among))
    low, high = min(among), max(among)
    if low > 0 and math.log10(high / low) >= 1 - 1e-9:
        return tune.loguniform(low, high)
    return tune.uniform(low, high)

"""What is searched for each method: one module a method, whose SPACE maps the factory's keywords to lists of
values.

A method without hyper-parameters has an empty SPACE. Spaces are grids: the same points whoever searches, so
that methods can be given equal budgets. They are plain data and import nothing; `raffed.search`
gives them to Ray Tune.

    python -m tune_spaces fedmr --dataset digits --split p10c2 --out sweeps/fedmr      # = raffed tune
                                                                                       --method fedmr ...
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Mapping
from typing import TypeAlias

from raffed.config.search_axis import axis_values, named_axes
from raffed.config.validation import Value
from raffed.errors import UsageError

LARGEST_GRID = 100_000  # settings, every one of which is checked before the first is tried
Space: TypeAlias = Mapping[str, Value]
GridPoint: TypeAlias = dict[str, Value]


def has_space(method: str) -> bool:
    """Whether there is a module for a method."""
    return method.isidentifier() and importlib.util.find_spec(f"{__name__}.{method}") is not None


def no_space(method: str) -> str:
    """What to do about a method that has no search space."""
    own = "say at the method what to try, as in @raffed.method(space={'mu': [0.01, 0.1]})"
    if method.isidentifier():  # one of raffed's own; others are references such as ./my.py:prox
        own = (
            f"write tune_spaces/{method}.py with SPACE = {{keyword: [values]}} and the source of the values "
            "in its docstring"
        )
    return (
        f"{method} has no search space: give --grid with its arguments, or {own}; an empty space is for a "
        "method without hyper-parameters"
    )


def load_space(method: str) -> Space:
    """The SPACE of a method; a UsageError says which file to write where there is none, or what is wrong
    with it.
    """
    name = f"{__name__}.{method}"
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError(no_space(method)) from error
    return dict(named_axes(getattr(found, "SPACE", None), f"{found.__file__}: SPACE"))


def values(space: Space, keyword: str) -> list[Value]:
    """The values of one axis of a grid: a list, a range such as "1e-4..1:log", or what `ray.tune.grid_search`
    makes of a list. Others, and a list without values, are a UsageError.
    """
    return axis_values(keyword, space[keyword])


def points(space: Space) -> list[GridPoint]:
    """Every setting of a grid, the last keyword changing fastest; one empty setting for an empty space."""
    axes = [values(space, keyword) for keyword in space]
    size = math.prod(len(axis) for axis in axes)  # `map` is the module of a method here
    if size > LARGEST_GRID:
        names = ", ".join(space)
        raise UsageError(
            f"a grid over {names} has {size:,} settings, but may have at most {LARGEST_GRID:,}; leave "
            "values out"
        )
    return [dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*axes)]

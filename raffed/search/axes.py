"""What each method of a sweep is searched over: lists of values and ranges, as many settings as the others.

A method whose own space has fewer settings than the budget also tries learning rates around that of the
configuration, unless the request says otherwise (`Request.fill`). Does not use Ray.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ray import tune
from ray.tune.search.sample import Domain

from raffed.config.search_axis import RATE_ARGUMENTS, NumberRange, number_range
from raffed.config.sections import SECTIONS
from raffed.config.validation import Json, Value, declarations
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import method_info
from raffed.results.sweep_file import SEED_AXIS
from raffed.search.request import MethodSettings, Request, check_section, within_budget
from raffed.tune_spaces import has_space, load_space, points

Axis: TypeAlias = "list[Json] | NumberRange"
Axes: TypeAlias = Mapping[str, Axis]
RATE = "local.lr"
RATES = 5  # settings of a method that has nothing else to search, if no other method has more
DECADES = 1.0  # how far rates lie from that of the configuration, up and down, in powers of ten
TRIES = 100  # draws for each setting of a random search before it counts as exhausted


def own_axes(request: Request, method: str) -> dict[str, Axis]:
    """Return a method's SPACE without what --set fixes, and the axes of --grid.

    `mu=…` is an axis for every method that takes mu, `fedmr.mu1=…` for fedmr only, whatever `mu1=…` says,
    and `local.lr=…`, `model.args.hidden=…` and `seed=…` are those of the configuration. A method with axes
    for its arguments does not need a SPACE.

    Raises:
        UsageError: A SPACE names something that is neither an argument nor a field of the configuration.
    """
    info = method_info(method)
    fixed, takes = request.args.get(method, {}), declarations(info.load())
    axes, own = dict[str, Axis](), False
    for name, among in request.grid.items():
        owner, dot, argument = name.rpartition(".")
        if not dot and f"{method}.{name}" in request.grid:
            continue
        if owner == method or (not dot and name in takes):
            axes[argument], own = axis_of(among, takes[argument].kinds if argument in takes else ()), True
        elif (dot and owner not in request.methods) or name == SEED_AXIS:
            axes[name] = axis_of(among, _kinds(name))
    space = info.space
    if space is None:
        space = {} if own and not has_space(method) else load_space(method)
    for name in space:
        if "." in name:
            check_section(name)
        elif name not in takes:
            raise UnknownNameError(f"argument of {method} in its search space", name, takes)
    kinds = {name: takes[name].kinds if name in takes else _kinds(name) for name in space}
    searched = {name: axis_of(space[name], kinds[name]) for name in space if name not in fixed}
    return {**searched, **axes}


def _kinds(name: str) -> Sequence[str]:
    """Return the types that a field of the configuration takes; none if they are not known."""
    section, _, field = name.partition(".")
    known = declarations(SECTIONS[section]) if section in SECTIONS else {}
    return known[field].kinds if field in known else ()


def axis_of(among: Value, kinds: Sequence[str] = ()) -> Axis:
    """Return an axis as it is searched. A range is whole only where whole numbers are needed."""
    if isinstance(among, Mapping) and set(among) == {"grid_search"}:
        among = among["grid_search"]
    one = among[0] if isinstance(among, list | tuple) and len(among) == 1 else among
    found = number_range(one) if isinstance(one, str) else None
    if found is None:
        return [_plain(value) for value in (among if isinstance(among, list | tuple) else [among])]
    return replace(found, whole=found.whole and "float" not in kinds)


def _plain(value: Value) -> Json:
    """Return a value as JSON has it, with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value


def points_of(space: Mapping[str, Value]) -> list[MethodSettings]:
    """Return every setting of a grid as it is recorded."""
    return [{name: _plain(value) for name, value in point.items()} for point in points(space)]


def axes_of(request: Request, method: str) -> dict[str, Axis]:
    """Return everything that is searched for a method, the rates that make up the budget included."""
    axes = own_axes(request, method)
    argument, factor = RATE_ARGUMENTS.get(method, (RATE, 1.0))
    budget, known = budget_of(request), _settings(request, axes)
    given = argument in axes or argument in request.args.get(method, {})
    if request.fill == "none" or given or known >= budget:
        return axes
    return {**axes, argument: _rates(request, factor * request.base.local.lr, -(-budget // int(known)))}


def budget_of(request: Request) -> int:
    """Return the number of trials per method: as many as asked, or as the largest grid has."""
    if request.trials:
        return request.trials
    return max(_own_size(request, own_axes(request, method)) for method in request.methods)


def _own_size(request: Request, axes: Axes) -> int:
    size = math.prod(len(_values(axis)) for axis in axes.values())
    return RATES if not axes and request.fill == "rate" else size


def _settings(request: Request, axes: Axes) -> float:
    """Return how many settings a search can propose: any number where a range is drawn from."""
    drawn = {"grid": False, "random": any(isinstance(axis, NumberRange) for axis in axes.values())}
    if drawn.get(request.search, any(_is_drawn(axis) for axis in axes.values())):
        return math.inf
    return math.prod(len(_values(axis)) for axis in axes.values())


def _is_drawn(axis: Axis) -> bool:
    """Return whether Optuna draws from between the values, and does not choose among them."""
    if isinstance(axis, NumberRange):
        return True
    return len(axis) > 1 and all(isinstance(value, float) for value in axis)


def _rates(request: Request, middle: float, count: int) -> Axis:
    """Return `count` learning rates around `middle`, or their range if they are drawn.

    The rates are rounded, but for `middle`, which is that of the configuration.
    """
    spread = 10**DECADES
    if request.search != "grid":
        return NumberRange(middle / spread, middle * spread, log=True)
    odd = count | 1  # with an odd number the rate of the configuration is then among them
    step = 2 * DECADES / max(odd - 1, 1)
    exact = [middle * 10 ** (number * step - DECADES) for number in range(count)]
    for digits in range(2, 17):  # two are easy to read, but with more than about 60 rates some would be equal
        found = [float(f"{rate:.{digits}g}") for rate in exact]
        found[odd // 2] = float(f"{middle:.15g}")
        if len(set(found)) == count:
            break
    return list(found)


def _values(axis: Axis) -> list[Json]:
    return list(axis.values()) if isinstance(axis, NumberRange) else list(axis)


def grid_of(axes: Axes) -> dict[str, list[Json]]:
    """Return the values of every axis, those of a range as a grid takes them."""
    return {name: _values(axis) for name, axis in axes.items()}


def described(axes: Axes, search: str) -> dict[str, list[Json]]:
    """Return what sweep.json records of the axes: values, or the text of a range that is drawn from."""
    return (
        grid_of(axes)
        if search == "grid"
        else {
            name: [str(axis)] if isinstance(axis, NumberRange) else list(axis) for name, axis in axes.items()
        }
    )


def proposed(request: Request, method: str) -> list[MethodSettings]:
    """Return the settings of a grid or of a random search, all of which are known beforehand."""
    axes, budget = axes_of(request, method), budget_of(request)
    if request.search == "random":
        return _drawn(axes, budget, request.base.seed)
    grid = grid_of(axes)
    seeds = grid.pop(SEED_AXIS, None)
    if seeds is None:
        return within_budget(points_of(grid), budget, request.base.seed)
    # Every setting has all seeds, so that means are over the same seeds
    kept = within_budget(points_of(grid), max(1, budget // len(seeds)), request.base.seed)
    return [{name: {**one, SEED_AXIS: seed}[name] for name in axes} for one in kept for seed in seeds]


def _drawn(axes: Axes, budget: int, seed: int) -> list[MethodSettings]:
    """Return `budget` settings, each drawn at random, none twice; fewer if there are not so many."""
    source, found = random.Random(seed), dict[str, MethodSettings]()
    for _ in range(budget * TRIES):
        one = {name: _one(axis, source) for name, axis in axes.items()}
        found.setdefault(repr(one), one)
        if len(found) == budget:
            break
    return list(found.values())


def _one(axis: Axis, source: random.Random) -> Json:
    return axis.draw(source) if isinstance(axis, NumberRange) else source.choice(list(axis))


def check_axes(request: Request) -> None:
    """Refuse an axis that no method of the request takes.

    Raises:
        UsageError: An argument is not one of any method, or a field is written without its section.
    """
    taken = {name for method in request.methods for name in own_axes(request, method)}
    for name in request.grid:
        if name not in taken and name.rpartition(".")[2] not in taken:
            methods = ", ".join(request.methods)
            raise UsageError(
                f"--grid {name}: none of {methods} has this argument; write a field of the configuration "
                "with its section, such as local.lr"
            )


# Turn axes into search spaces for Ray Tune's searchers.


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

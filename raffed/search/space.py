"""What each method of a sweep is searched over: lists of values and ranges, as many settings as the others.

A method whose own space has fewer settings than the budget also tries learning rates around that of the
configuration, unless the request says otherwise (`Request.fill`). A request is checked before its first run.
Does not use Ray.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from raffed.config.search_axis import RATE_ARGUMENTS, NumberRange, number_range
from raffed.config.sections import SECTIONS
from raffed.config.validation import Json, Value, declarations
from raffed.data.partition_file import Partition
from raffed.errors import RunFolderError, UnknownNameError, UsageError
from raffed.methods import checked_method, method_info
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.sweep_file import FINALS, SEED_AXIS, TRIALS
from raffed.runs.code_record import check_code
from raffed.runs.folder import check_data, run_config
from raffed.search.folder import trial_name
from raffed.search.request import MethodSettings, Request, check_section, within_budget
from raffed.tune_spaces import has_space, load_space, points

if TYPE_CHECKING:
    from raffed.runtime.setup import Setup

Axis: TypeAlias = "list[Json] | NumberRange"
Axes: TypeAlias = Mapping[str, Axis]
RATE = "local.lr"
RATES = 5  # settings of a method that has nothing else to search, if no other method has more
DECADES = 1.0  # how far rates lie from that of the configuration, up and down, in powers of ten
TRIES = 100  # draws for each known setting before a search counts as exhausted


def own_axes(request: Request, method: str) -> dict[str, Axis]:
    """Return a method's SPACE without what --set fixes, and the axes of --grid.

    `mu=…` is an axis for every method that takes mu, `fedmr.mu1=…` for fedmr only, whatever `mu1=…` says,
    and `local.lr=…`, `model.args.hidden=…` and `seed=…` are those of the configuration. A method with axes
    for its arguments does not need a SPACE.

    Raises:
        UsageError: A SPACE names something that is neither an argument nor a field of the configuration, or
            an axis is an argument that is fixed.
    """
    info = method_info(method)
    fixed, takes = request.args.get(method, {}), {entry.name: entry for entry in info.described().arguments}
    axes, names_arguments = dict[str, Axis](), False
    for name, among in request.grid.items():
        owner, dot, argument = name.rpartition(".")
        if not dot and f"{method}.{name}" in request.grid:
            continue
        if owner == method or (not dot and name in takes):
            if argument in fixed:
                raise UsageError(
                    f"--grid {name}: --set fixes {argument} of {method}; leave one of them out, or write "
                    f"METHOD.{argument}=… to search it for another method"
                )
            axes[argument] = axis_of(among, takes[argument].kinds if argument in takes else ())
            names_arguments = True
        elif (dot and owner not in request.methods) or name == SEED_AXIS:
            axes[name] = axis_of(among, _kinds(name))
    space = info.space
    if space is None:
        space = {} if names_arguments and not has_space(method) else load_space(method)
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
    single = among[0] if isinstance(among, list | tuple) and len(among) == 1 else among
    numbers = number_range(single) if isinstance(single, str) else None
    if numbers is None:
        return [_plain(value) for value in (among if isinstance(among, list | tuple) else [among])]
    return replace(numbers, whole=numbers.whole and "float" not in kinds)


def _plain(value: Value) -> Json:
    """Return a value as JSON has it, with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
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
    """Return the number of trials per method: as many settings as asked or as the largest grid has, each with
    all seeds.
    """
    every = [own_axes(request, method) for method in request.methods]
    seeds = max(len(_values(axes.pop(SEED_AXIS, [None]))) for axes in every)
    largest = max(_grid_size(axes) if axes or request.fill == "none" else RATES for axes in every)
    return (request.trials or largest) * seeds


def _grid_size(axes: Axes) -> int:
    return math.prod(len(_values(axis)) for axis in axes.values())


def _settings(request: Request, axes: Axes) -> float:
    """Return how many settings a search can propose: any number where a range is drawn from."""
    drawn = {"grid": False, "random": any(isinstance(axis, NumberRange) for axis in axes.values())}
    endless = drawn.get(request.search, any(is_drawn(axis) for axis in axes.values()))
    return math.inf if endless else _grid_size(axes)


def is_drawn(axis: Axis) -> bool:
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
        rates = [float(f"{rate:.{digits}g}") for rate in exact]
        rates[odd // 2] = float(f"{middle:.15g}")
        if len(set(rates)) == count:
            break
    return list(rates)


def _values(axis: Axis) -> list[Json]:
    return list(axis.values()) if isinstance(axis, NumberRange) else list(axis)


def grid_of(axes: Axes) -> dict[str, list[Json]]:
    """Return the values of every axis, those of a range as a grid takes them."""
    return {name: _values(axis) for name, axis in axes.items()}


def space_of(request: Request, method: str) -> dict[str, list[Json]]:
    """Return what is searched for a method as lists of values."""
    return dict(grid_of(axes_of(request, method)))


def described(axes: Axes, search: str) -> dict[str, list[Json]]:
    """Return what sweep.json records of the axes: values, or the text of a range that is drawn from."""
    if search == "grid":
        return grid_of(axes)
    return {name: [str(axis)] if isinstance(axis, NumberRange) else list(axis) for name, axis in axes.items()}


def proposed(request: Request, method: str) -> list[MethodSettings]:
    """Return the settings of a grid or of a random search, all of which are known beforehand.

    Optuna proposes others within the same axes.
    """
    axes, budget = axes_of(request, method), budget_of(request)
    if request.search != "grid":
        return _drawn(axes, budget, request.base.seed)
    grid = grid_of(axes)
    seeds = grid.pop(SEED_AXIS, [request.base.seed])
    # Every setting has all seeds, so that means are over the same seeds
    kept = within_budget(points_of(grid), budget // len(seeds), request.base.seed)
    return [{name: {**point, SEED_AXIS: seed}[name] for name in axes} for point in kept for seed in seeds]


def _drawn(axes: Axes, budget: int, seed: int) -> list[MethodSettings]:
    """Return `budget` settings, each drawn at random, none twice; fewer if there are not so many."""
    source, drawn = random.Random(seed), dict[str, MethodSettings]()
    while len(drawn) < budget and (settings := another(axes, drawn.keys(), source)) is not None:
        drawn[trial_name(settings)] = settings
    return list(drawn.values())


def another(axes: Axes, known: Set[str], source: random.Random) -> MethodSettings | None:
    """Return a random setting whose trial has none of the names `known`; None if there seems to be none."""
    for _ in range(TRIES * (len(known) + 1)):
        settings = {name: _draw(axis, source) for name, axis in axes.items()}
        if trial_name(settings) not in known:
            return settings
    return None


def _draw(axis: Axis, source: random.Random) -> Json:
    return axis.draw(source) if isinstance(axis, NumberRange) else source.choice(list(axis))


# The checks of a request before its first run.


def check_search(request: Request) -> None:
    """Refuse a search for which a package is missing. Done before Ray starts or a folder is made.

    Raises:
        UsageError: Optuna is not installed.
    """
    if request.search == "optuna" and importlib.util.find_spec("optuna") is None:
        raise UsageError("--search optuna needs Optuna: pip install 'raffed[sweep]'")


def check(request: Request) -> None:
    """Check a request before its first run starts.

    All names must exist, every point of every grid must make a run, or as many settings as `trials` says if
    they are drawn, and the run must measure the score asked for.
    """
    check_search(request)
    request.check_score()
    for method in request.methods:
        whole = request.search == "grid" or request.trials is None  # then as many as the grid has are tried
        every = points_of(space_of(request, method)) if whole else proposed(request, method)
        [(name, count)] = Counter(map(_in_short_numbers, every)).most_common(1)
        if count > 1:
            raise UsageError(f"{method}: {count} settings of the grid are equal: {name}; leave one out")
        for point in every:
            built = checked_method(request.config(method, point))
            if request.select != "personal" and not built.has_global:
                raise UsageError(f"{method} has no global model: give --select personal")
            _check_final(request, method, point)
    _check_axes(request)


def _check_axes(request: Request) -> None:
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
                "with its section, such as local.lr, and an argument of one method as METHOD.NAME, such as "
                "fedmr.mu1"
            )


def _check_final(request: Request, method: str, point: MethodSettings) -> None:
    """Refuse a rule that ends trials early where the final runs have no validation part to decide by.

    Raises:
        UsageError: The final runs would be refused, after the whole search.
    """
    for seed in request.final_seeds()[:1]:
        rule = request.config(method, point, seed).federation.stop_when
        if rule:
            raise UsageError(
                f"federation.stop_when = {rule!r}: the final runs train on all training data, and nothing is "
                "left by which they could end early; leave it out, and give a number of rounds"
            )


def _in_short_numbers(settings: MethodSettings) -> str:
    """Return a setting as the name of a trial, in which 1.0 and 1 are the same."""
    return trial_name({name: _shortened(value) for name, value in settings.items()})


def _shortened(value: Json) -> Json:
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_networks(request: Request, setup: Setup) -> None:
    """Build the network of every setting that changes it, so that no trial fails because of its arguments.

    Args:
        request: The sweep.
        setup: That of one of its runs, for the shape of the inputs.
    """
    from raffed.runtime.initial_weights import read_initial
    from raffed.runtime.run_method import network_of
    from raffed.runtime.setup_model import check_network

    shape, classes, dtype = setup.data.input_shape, setup.dataset.num_classes, setup.data.input_dtype
    for method in request.methods:
        every = {
            name: among for name, among in space_of(request, method).items() if name.startswith("model.")
        }
        for point in points(every) if every else ():
            config = request.config(method, point)
            network = network_of(config, initial=read_initial(config.model))
            check_network(network, shape, classes, dtype)


def check_parts(request: Request, partition: Partition) -> None:
    """Check that clients have the test parts that the score needs.

    Personal models need local test parts in the papers' protocol. Validation parts were already held out or
    refused.
    """
    if (
        request.select != "global"
        and request.protocol == "paper"
        and not any(len(part) for part in partition.test)
    ):
        raise UsageError(
            f"--select {request.select}: no client has a local test part; give --local-test, such as 0.2"
        )


# The user's own code and data of a sweep that goes on must be those of the runs that have begun.


def check_trials(out: Path, accept: bool) -> None:
    """Apply `check_code` to every run of a sweep that has begun, and `check_data`, before the sweep goes on.

    Args:
        out: The sweep's folder.
        accept: Whether changed code is taken.

    Raises:
        RunFolderError: As in `check_code`.
        DataFileError: As in `check_data`.
    """
    begun = sorted(path.parent for kind in (TRIALS, FINALS) for path in out.glob(f"*/{kind}/*/{RUN_FILE}"))
    for folder in begun:
        try:
            about, config = read_run(folder), run_config(folder)
        except RunFolderError:
            continue  # a damaged run is put aside by the sweep, and run again
        check_code(folder, about, config, accept)
    check_data(begun)

"""The checks of a sweep's request before its first run, without Ray."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.validation import Json
from raffed.data.partition_file import Partition
from raffed.errors import RunFolderError, UsageError
from raffed.methods import build_method
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.sweep_file import FINALS, TRIALS
from raffed.runs.code_record import check_code
from raffed.runs.folder import run_config
from raffed.search.axes import axes_of, check_axes, grid_of, points_of
from raffed.search.axes import proposed as settings_of
from raffed.search.request import MethodSettings, Request
from raffed.search.trials import trial_name
from raffed.tune_spaces import points

if TYPE_CHECKING:
    from raffed.runtime.setup import Setup


def space_of(request: Request, method: str) -> dict[str, list[Json]]:
    """Return what is searched for a method as lists of values (raffed/search/axes.py)."""
    return dict(grid_of(axes_of(request, method)))


def check_search(request: Request) -> None:
    """Refuse a search for which a package is missing. Done before Ray starts or a folder is made.

    Raises:
        UsageError: Optuna is not installed.
    """
    if request.search == "optuna" and importlib.util.find_spec("optuna") is None:
        raise UsageError("--search optuna needs Optuna: pip install 'raffed[sweep]'")


def check(request: Request) -> None:
    """Check a request before its first run starts.

    All names must exist, every point of every grid must make a run, and the run must measure the score asked
    for.
    """
    check_search(request)
    request.check_score()
    for method in request.methods:
        every = _checked_points(request, method)
        for told, name_of in (("would share the folder", trial_name), ("are equal:", _in_short_numbers)):
            [(name, count)] = Counter(map(name_of, every)).most_common(1)
            if count > 1:
                raise UsageError(f"{method}: {count} settings of the grid {told} {name}; leave one out")
        for point in every:
            built = build_method(method, request.config(method, point).args)
            if request.select != "personal" and not built.has_global:
                raise UsageError(f"{method} has no global model: give --select personal")
            _check_final(request, method, point)
    check_axes(request)


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


def _checked_points(request: Request, method: str) -> list[MethodSettings]:
    """Return the settings of a method that are checked: those that are drawn, or the whole grid.

    Optuna proposes what lies between the values of the grid.
    """
    return (
        settings_of(request, method) if request.search == "random" else points_of(space_of(request, method))
    )


def _in_short_numbers(settings: MethodSettings) -> str:
    """Return a setting as the name of a trial, in which 1.0 and 1 are the same."""
    return trial_name({name: _shortened(value) for name, value in settings.items()})


def _shortened(value: Json) -> Json:
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_networks(request: Request, setup: Setup) -> None:
    """Build the network of every setting that changes it, so that no trial fails because of its arguments.

    Args:
        request: The sweep.
        setup: That of one of its runs, for the shape of the inputs.
    """
    from raffed.runtime.setup_model import check_network

    shape, classes, dtype = setup.data.input_shape, setup.dataset.num_classes, setup.data.input_dtype
    for method in request.methods:
        every = {
            name: among for name, among in space_of(request, method).items() if name.startswith("model.")
        }
        for point in points(every) if every else ():
            check_network(request.config(method, point), shape, classes, dtype)


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


# The user's own code of a sweep that goes on must be that of the runs that have begun. Does not use Ray.


def check_trials(out: Path, accept: bool) -> None:
    """Apply `check_code` to every run of a sweep that has begun, before the sweep goes on.

    Args:
        out: The sweep's folder.
        accept: Whether changed code is taken.

    Raises:
        RunFolderError: As in `check_code`.
    """
    begun = (one.parent for kind in (TRIALS, FINALS) for one in out.glob(f"*/{kind}/*/{RUN_FILE}"))
    for folder in sorted(begun):
        try:
            about, config = read_run(folder), run_config(folder)
        except RunFolderError:
            continue  # a damaged run is put aside by the sweep, and run again
        check_code(folder, about, config, accept)

"""What a sweep searches for each method, and the checks of a request before its first run, without Ray."""

from __future__ import annotations

import importlib.util
from collections import Counter

from raffed.config.validation import Value, declarations
from raffed.data.partition import Partition
from raffed.errors import UsageError
from raffed.experiments.tuning.request import Request
from raffed.experiments.tuning.trials import trial_name
from raffed.methods import build_method, method_info
from raffed.tune_spaces import has_space, load_space, points, values


def space_of(request: Request, method: str) -> dict[str, list[Value]]:
    """Return what is searched for a method: its SPACE without what --set fixes, and the axes of --grid.

    `mu=…` is an axis for every method that takes mu, `fedmr.mu1=…` for fedmr only, and `local.lr=…` a field
    of the configuration. A method with axes for its arguments does not need a SPACE.
    """
    info = method_info(method)
    fixed, takes = request.args.get(method, {}), declarations(info.load())
    axes, own = dict[str, list[Value]](), False
    for name, among in request.grid.items():
        owner, dot, argument = name.rpartition(".")
        if owner == method or (not dot and name in takes):
            axes[argument], own = list(among), True
        elif dot and owner not in request.methods:
            axes[name] = list(among)
    space = info.space
    if space is None:
        space = {} if own and not has_space(method) else load_space(method)
    return {**{name: values(space, name) for name in space if name not in fixed}, **axes}


def budget_of(request: Request) -> int:
    """Return the number of settings tried per method: as many as asked, or as the largest grid has."""
    return request.trials or max(len(points(space_of(request, method))) for method in request.methods)


def check(request: Request) -> None:
    """Check a request before its first run starts.

    All names must exist, every point of every grid must make a run, and the run must measure the score asked
    for.
    """
    if request.search == "optuna" and importlib.util.find_spec("optuna") is None:
        raise UsageError("--search optuna needs Optuna: pip install 'raffed[sweep]'")
    request.check_score()
    for method in request.methods:
        every = points(space_of(request, method))
        for name, count in Counter(map(trial_name, every)).items():
            if count > 1:
                raise UsageError(
                    f"{method}: {count} settings of the grid would share the folder {name}; leave one out"
                )
        for point in every:
            built = build_method(method, request.config(method, point).args)
            if request.select != "personal" and not built.has_global:
                raise UsageError(f"{method} has no global model: give --select personal")
    taken = {name for method in request.methods for name in space_of(request, method)}
    for name in request.grid:
        if name not in taken and name.rpartition(".")[2] not in taken:
            methods = ", ".join(request.methods)
            raise UsageError(
                f"--grid {name}: none of {methods} has this argument; write a field of the configuration "
                "with its section, such as local.lr"
            )


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

"""Ray Tune over the spaces: one Tuner a method, then one for the final runs of the chosen setting."""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from raffed.core.config import Runtime
from raffed.core.errors import UsageError
from raffed.data.partition import Partition
from raffed.experiments.sweep import (
    Request,
    SweepFolder,
    Trial,
    Watcher,
    choose,
    cost,
    read_trial,
    trial_name,
    within_budget,
    write_rows,
)
from raffed.results.runfile import RUN_FILE, read_run
from raffed.runtime.ray_nodes import check_shared

from . import continuous, has_space, load_space, points, values
from .progress import Progress, listening
from .trial import POINT, SEED, Task, federation

QUIET_TUNE = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # every trial writes Parquet of its own
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune would take Ctrl-C for the end of a search, from which a setting is chosen
}


def space_of(request: Request, method: str) -> dict[str, Any]:
    """What is searched for a method: its SPACE without what --set fixes, and the axes of --grid over it.

    `mu=…` is an axis of every method that takes mu, `fedmr.mu1=…` of fedmr alone, `local.lr=…` a field of the configuration.
    With axes for its arguments a method needs no SPACE.
    """
    fixed, takes = request.args.get(method, {}), _keywords(method)
    axes, own = dict[str, Any](), False
    for name, among in request.grid.items():
        owner, dot, argument = name.rpartition(".")
        if owner == method or (not dot and name in takes):
            axes[argument], own = tune.grid_search(list(among)), True
        elif dot and owner not in request.methods:
            axes[name] = tune.grid_search(list(among))
    space = {} if own and not has_space(method) else load_space(method)
    return {**{name: axis for name, axis in space.items() if name not in fixed}, **axes}


def budget_of(request: Request) -> int:
    """Settings tried per method: as many as asked, or as the largest grid has."""
    return request.trials or max(len(points(space_of(request, method))) for method in request.methods)


def check(request: Request) -> None:
    """Names, that every point of every grid makes a run, and one whose score is asked for, before the first one starts."""
    from raffed.methods import build_method

    for method in request.methods:
        every = points(space_of(request, method))
        for name, count in Counter(map(trial_name, every)).items():
            if count > 1:
                raise UsageError(f"{method}: {count} settings of the grid are called {name}, as their folders are; leave one out")
        for point in every:
            built = build_method(method, request.config(method, point).args)
            if request.select != "personal" and not built.has_global:
                raise UsageError(f"{method} has no global model: give --select personal")
    taken = {name for method in request.methods for name in space_of(request, method)}
    for name in request.grid:
        if name not in taken and name.rpartition(".")[2] not in taken:
            methods = ", ".join(request.methods)
            raise UsageError(f"--grid {name}: none of {methods} takes it; a field of the configuration has a dot")


def check_parts(request: Request, partition: Partition) -> None:
    """That the papers' protocol has local test parts for personal models; validation parts were held out, or refused."""
    if request.select != "global" and request.protocol == "paper" and not any(len(part) for part in partition.test):
        raise UsageError(f"--select {request.select}: no client has a local test part; give --local-test, such as 0.2")


@dataclass(frozen=True)
class Search:
    """Where and how the trials run. at_once: trials at a time, 0 for as many as fit. seconds: for all methods together."""

    request: Request
    folder: SweepFolder
    watch: Watcher
    clients: int
    at_once: int = 0
    seconds: float | None = None


def carry_out(search: Search) -> bool:
    """Search and choose, method by method, then repeat the choices; whether everything was done. Ray is up."""
    check_shared(search.folder.path.resolve(), "a sweep, whose trials run anywhere,")
    os.environ.update(QUIET_TUNE)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are told in a line each
    left, methods = search.seconds, search.request.methods
    for number, method in enumerate(methods):
        share = None if left is None else left / (len(methods) - number)  # what one method leaves, the next ones have
        spent = _tuned(search, method, share)
        left = None if left is None else max(left - spent, 1.0)
    done = [_repeated(search, method) for method in methods]
    return all(done)


def _tuned(search: Search, method: str, seconds: float | None) -> float:
    """Try the settings of a method and note what was chosen; returns the seconds it took."""
    request, folder = search.request, search.folder
    space, budget = space_of(request, method), budget_of(request)
    folder.note(method, space={name: values(space, name) for name in space}, budget=budget)
    task = Task(request, method, str((folder.path / method / "trials").resolve()))
    with listening(_heard(search, task)) as time:
        grid = _fit(search, task, "search", _param_space(request, space, budget), seconds, _searcher(request, space, budget))
    results = [grid[index] for index in range(len(grid))]
    settings = [task.point(result.config or {}) for result in results]
    if request.search == "grid":  # in the grid's order, whatever Tune's is, and also what was never begun
        settings = within_budget(points(space), budget, request.base.seed)
    errors = {trial_name(task.point(r.config or {})): str(r.error) for r in results if r.error is not None}
    trials = [read_trial(request, folder.trial(method, one), one, errors.get(trial_name(one))) for one in settings]
    write_rows(folder, method, trials)
    folder.note(method, **outcome(trials))
    return time.seconds


def outcome(trials: list[Trial]) -> dict[str, Any]:
    """What sweep.json says of a method's trials."""
    chosen = choose(trials)
    return {"trials": [trial.as_dict() for trial in trials], "cost": cost(trials), "chosen": chosen.as_dict() if chosen else None}


def _repeated(search: Search, method: str) -> bool:
    """The chosen setting with fresh seeds; whether there is a choice and every run came to its end."""
    request, folder = search.request, search.folder
    chosen, seeds = folder.chosen(method), request.final_seeds()
    if chosen is None or not seeds:
        return chosen is not None
    task = Task(request, method, str((folder.path / method / "final").resolve()), chosen)
    with listening(_heard(search, task)):
        _fit(search, task, "repeat", {SEED: tune.grid_search(seeds)}, None, {})
    found = []
    for seed in seeds:
        where = folder.final(method, seed)
        state = str(read_run(where).get("state")) if (where / RUN_FILE).exists() else "failed"
        found.append({"seed": seed, "folder": where.relative_to(folder.path).as_posix(), "state": state})
    folder.note(method, final=found)
    return all(one["state"] == "finished" for one in found)


def _fit(
    search: Search, task: Task, name: str, space: Mapping[str, Any], seconds: float | None, searcher: Mapping[str, Any]
) -> tune.ResultGrid:
    """Run the trials. A grid needs no memory of Tune's to go on: each trial finds its own folder. A scheduler or searcher that
    learns goes on from Tune's state, where there is one."""
    runtime = search.request.base.runtime
    trainable = tune.with_resources(tune.with_parameters(federation, task=task), placement(runtime, search.clients))
    storage = (search.folder.path / task.method).resolve()
    if searcher and tune.Tuner.can_restore(str(storage / name)):
        return tune.Tuner.restore(str(storage / name), trainable, restart_errored=True, param_space=dict(space)).fit()
    shutil.rmtree(storage / name, ignore_errors=True)  # Tune's own notes on trials that are now begun anew
    config = tune.TuneConfig(
        metric="score", mode="max", max_concurrent_trials=search.at_once or None, time_budget_s=seconds,
        reuse_actors=runtime.execution == "serial", **searcher,
    )  # fmt: skip
    failures = tune.FailureConfig(max_failures=0, fail_fast=False)
    run = tune.RunConfig(name=name, storage_path=str(storage), verbose=0, callbacks=[Progress()], failure_config=failures)
    return tune.Tuner(trainable, param_space=dict(space), tune_config=config, run_config=run).fit()


def placement(runtime: Runtime, clients: int) -> tune.PlacementGroupFactory:
    """What a trial reserves: a core (and a share of a GPU) for a federation in the trial's own process; else nothing for the
    trial and, for its client actors, a core each or whole GPUs that they share."""
    share = runtime.gpu_fraction
    if runtime.execution == "serial":
        return tune.PlacementGroupFactory([{"CPU": 1, "GPU": share} if share else {"CPU": 1}])
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cores, gpus = float(found.get("CPU", 1)), float(found.get("GPU", 0))
    actors = actors_of(runtime, clients)
    if not share:
        each = min(1.0, int(cores / actors * 1e4) / 1e4)
        return tune.PlacementGroupFactory([{}, *({"CPU": each} for _ in range(actors))], strategy="PACK")
    on_one = round(1 / share)
    wanted = math.ceil(actors / on_one)
    if wanted > gpus:
        raise UsageError(f"a trial of {actors} actors with {share} GPU each needs {wanted} GPUs, there are {gpus:g}")
    bundle = {"CPU": min(float(on_one), int(cores / gpus * 1e4) / 1e4), "GPU": 1}
    return tune.PlacementGroupFactory([{}, *(bundle for _ in range(wanted))], strategy="PACK")


def actors_of(runtime: Runtime, clients: int) -> int:
    """Client actors of a trial: as asked, or as many as share one GPU, or one."""
    if runtime.clients_per_actor:
        return -(-clients // runtime.clients_per_actor)
    return runtime.actors or (round(1 / runtime.gpu_fraction) if runtime.gpu_fraction else 1)


def _param_space(request: Request, space: dict[str, Any], budget: int) -> dict[str, Any]:
    if request.search == "optuna" and space:
        return continuous(space)
    every = points(space)
    return space if budget >= len(every) else {POINT: tune.grid_search(within_budget(every, budget, request.base.seed))}


def _searcher(request: Request, space: Mapping[str, Any], budget: int) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    rounds = request.base.federation.rounds
    if request.scheduler == "asha":  # max_t beyond the last round: who gets there is to write its results
        first = max(1, rounds // 9)
        chosen["scheduler"] = ASHAScheduler(time_attr="round", max_t=rounds + 1, grace_period=first, reduction_factor=3)
    if request.search == "optuna" and space:
        from ray.tune.search.optuna import OptunaSearch

        try:
            chosen["search_alg"] = OptunaSearch(seed=request.base.seed)
        except AssertionError as error:  # Ray's way to say that Optuna is not installed
            raise UsageError("--search optuna needs Optuna: pip install 'raffed[sweep]'") from error
        chosen["num_samples"] = budget
    return chosen


def _heard(search: Search, task: Task) -> Any:
    """Tune's events as trials of this sweep."""

    def heard(state: str, trial: Any) -> None:
        result, point = trial.last_result or {}, task.point(trial.config)
        settings = dict(task.settings or {}) | point if task.settings is not None else point
        name = f"seed {point[SEED]}" if task.settings is not None else trial_name(point)
        score = float(result.get("score", -1.0))
        score = math.nan if score < 0 else score  # Tune compares with numbers only
        shown = Trial(name, settings, state, int(result.get("round", 0)), float(result.get("time_total_s", 0.0)), score)
        search.watch(task.method, shown, search.request.base.federation.rounds)

    return heard


def _keywords(method: str) -> set[str]:
    import inspect

    from raffed.methods import METHODS

    return set(inspect.signature(METHODS[method].load()).parameters)

"""Search with Ray Tune: one Tuner for each method, then one for the final runs of the chosen setting."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.error import TuneError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as TunedTrial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.sample import Domain

from raffed.config.search_axis import NumberRange
from raffed.config.sections import Runtime
from raffed.config.validation import Json
from raffed.errors import RaffedError, UsageError
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.sweep_file import FINALS, TRIALS, FinalRecord, MethodRecord
from raffed.runs.run import mark_stopped
from raffed.runtime.ray.nodes import check_shared, versions_to_send
from raffed.runtime.run_method import code_of
from raffed.scratch import scratch_folder
from raffed.search.folder import SweepFolder, SweepWatcher, Trial, choose, cost, read_trial, trial_name
from raffed.search.request import FAILED, FINISHED, PRUNED, Request
from raffed.search.space import Axes, Axis, another, axes_of, budget_of, described, is_drawn, proposed
from raffed.search.trainable import (
    REDUCTION,
    ROUND,
    SCORE,
    SEED,
    TRIAL,
    Ledger,
    Listener,
    Progress,
    Report,
    TrialTask,
    federation,
    first_rung,
    known_trials,
    make_room,
    shown,
)

log = logging.getLogger(__name__)

QUIET_TUNE = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # every trial writes its own Parquet files
    "TUNE_GLOBAL_CHECKPOINT_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    # Tune would treat Ctrl-C as the end of a search, and a setting would be chosen
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}


@dataclass(frozen=True)
class Search:
    """Where and how the trials run.

    `at_once` is the number of trials that run at the same time, 0 for as many as fit. `seconds` is the limit
    for all methods together. `accept_changed_code` says that own code may have changed since trials began.
    """

    request: Request
    folder: SweepFolder
    watch: SweepWatcher
    clients: int
    at_once: int = 0
    seconds: float | None = None
    accept_changed_code: bool = False

    def task(self, method: str, folder: Path, settings: Mapping[str, Json] | None = None) -> TrialTask:
        """Return what the trials of one method share."""
        code, accept = code_of(self.request.config(method, {})), self.accept_changed_code
        sent = versions_to_send()
        return TrialTask(self.request, method, str(folder), settings, code, accept, sent=sent)


class Halving(ASHAScheduler):
    """ASHA (asynchronous successive halving, Li et al. 2020). `ended` holds Tune's names of the trials that
    it ended.

    A trial that has done its last round always comes to its end, because stopping it would save nothing. It
    then writes its results.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(ROUND, SCORE, "max", rounds + 1, first_rung(rounds), REDUCTION)
        self._rounds = rounds
        self.ended: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Json) -> bool:
        """Ignore what Tune says is maximised, because it is known."""
        return True

    def on_trial_result(
        self, tune_controller: TuneController, trial: TunedTrial, result: dict[str, float]
    ) -> str:
        """Return whether a trial goes on."""
        decision: str = super().on_trial_result(tune_controller, trial, result)
        if decision != self.STOP or result[ROUND] >= self._rounds:
            return self.CONTINUE
        self.ended.add(trial.trial_id)
        return decision


def domain_of(axis: Axis) -> Domain:
    """Return the range that an axis spans.

    A list of values spans a range that is log-uniform if all are positive floats and spread by a factor of 10
    or more. It is uniform for other floats. Every other list is a choice among its values.
    """
    if isinstance(axis, NumberRange):
        return _range(axis.low, axis.high, axis.log, axis.whole)
    if not is_drawn(axis):
        chosen: Domain = tune.choice(axis)
        return chosen
    numbers = [value for value in axis if isinstance(value, float)]
    low, high = min(numbers), max(numbers)
    return _range(low, high, low > 0 and math.log10(high / low) >= 1 - 1e-9, whole=False)


def _range(low: float, high: float, log: bool, whole: bool) -> Domain:
    if whole:
        draw, end = (tune.lograndint if log else tune.randint), int(high) + 1
        among: Domain = draw(int(low), end)
    else:
        among = tune.loguniform(low, high) if log else tune.uniform(low, high)
    return among


def optuna_search(axes: Axes, seed: int, before: Sequence[Trial]) -> Searcher:
    """Return Optuna's search over the ranges of `axes`, which knows the trials before.

    It proposes the settings of interrupted and failed trials first. What has ended is added to its study, so
    that its model of the scores learns from it. Among whole numbers and words the model may propose a setting
    again: one drawn at random is then tried in its place, and the search ends if there is none. Its random
    numbers depend on how many trials have ended, because a search that is resumed would otherwise draw the
    settings of its first trials again.

    Raises:
        UsageError: A trial has settings outside of the ranges.
    """
    from ray.tune.search.optuna import OptunaSearch

    ended = [trial for trial in before if trial.ended]
    known, source = {trial.name for trial in ended}, random.Random(seed + len(ended))

    class Unrepeated(OptunaSearch):
        def suggest(self, trial_id: str) -> Any:
            asked: Any = super().suggest(trial_id)
            if trial_name(asked[TRIAL]) in known:
                if (settings := another(axes, known, source)) is None:
                    return self.FINISHED
                del self._ot_trials[trial_id]  # what is never told counts for nothing
                self._ot_study.enqueue_trial(_as_point(settings))  # type: ignore[attr-defined]
                asked = super().suggest(trial_id)
            known.add(trial_name(asked[TRIAL]))
            return asked

    waiting = [_as_point(trial.settings) for trial in before if not trial.ended]
    logging.getLogger("optuna").setLevel(logging.WARNING)  # it would print that it made a study
    try:
        search = Unrepeated(
            OptunaSearch.convert_search_space({TRIAL: {name: domain_of(axes[name]) for name in axes}}),
            metric=SCORE,
            mode="max",
            points_to_evaluate=waiting or None,
            seed=seed + len(ended),
        )
        for trial in ended:
            last = trial.reports[-1][1] if trial.reports else trial.score
            told = -1.0 if math.isnan(last) else last
            search.add_evaluated_point(_as_point(trial.settings), told, error=trial.diverged)
    except ValueError as error:
        raise UsageError(f"a trial of the search has settings outside of its ranges ({error})") from error
    return search


def _as_point(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of a trial with the names that Tune gives to what is below TRIAL."""
    return {f"{TRIAL}/{name}": value for name, value in settings.items()}


def check_cluster(out: Path, runtime: Runtime, clients: int) -> None:
    """Check that the cluster can execute a sweep, before the folder of the sweep is made.

    Ray must be running.

    Args:
        out: The folder of the sweep, which need not be there yet.
        runtime: How the clients of a trial are placed.
        clients: Number of clients of a trial.

    Raises:
        RunFolderError: A node does not see the folder.
        UsageError: A trial needs more GPUs than there are.
    """
    placement(runtime, clients)
    check_shared(out.resolve(), "a sweep, whose trials run anywhere,")


def execute_sweep(search: Search) -> bool:
    """Search and choose for each method, then repeat the choices. Return whether everything was done.

    Ray must be running.
    """
    os.environ.update(QUIET_TUNE)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # raffed reports each failure in one line
    left, methods = search.seconds, search.request.methods
    for number, method in enumerate(methods):
        # The time that one method leaves is available to the next ones
        share = None if left is None else left / (len(methods) - number)
        spent = _tuned(search, method, share)
        left = None if left is None else max(left - spent, 1.0)
    done = [_repeated(search, method) for method in methods]
    return all(done)


def _tuned(search: Search, method: str, seconds: float | None) -> float:
    """Try the settings of a method, record what was chosen, and return the seconds that this took."""
    request, folder, began = search.request, search.folder, time.monotonic()
    axes, budget = axes_of(request, method), budget_of(request)
    folder.note(method, {"space": described(axes, request.search), "budget": budget})
    listed = None if request.search == "optuna" and axes else proposed(request, method)
    before = known_trials(folder, method, listed, list(axes))
    folder.note(method, {"trials": [trial.as_dict() for trial in before]})
    ended = [trial for trial in before if trial.ended]
    for trial in ended:
        state = trial.state if trial.diverged else "done"
        search.watch(method, replace(trial, state=state), request.base.federation.rounds)
    left = (budget if listed is None else len(listed)) - len(ended)
    errors: dict[str, str] = {}
    if left > 0:
        task = search.task(method, folder.of(method).resolve() / TRIALS)
        heard = Ledger(folder, method, search.watch).heard
        if listed is None:
            searcher = optuna_search(axes, request.base.seed, before)
            errors = _fit(search, task, heard, {}, seconds, search_alg=searcher, num_samples=left)
        else:
            settings = [trial.settings for trial in before if not trial.ended]
            errors = _fit(search, task, heard, {TRIAL: tune.grid_search(settings)}, seconds)
    _record_outcome(folder, method, errors)
    return time.monotonic() - began


def _record_outcome(folder: SweepFolder, method: str, errors: Mapping[str, str]) -> None:
    """Read how the trials of a method ended, and record them and the choice.

    Args:
        folder: The sweep's folder.
        method: The method.
        errors: Name of a trial that failed just now → what went wrong.
    """
    trials = []
    for known in folder.trials(method):
        where = folder.trial(method, known.settings)
        trials.append(read_trial(folder.request, where, known, errors.get(known.name)))
        if trials[-1].state == PRUNED:
            mark_stopped(where, pruned=True)
    folder.note(method, outcome(trials))


def _halving(search: Search, method: str) -> Halving | None:
    """Return a new ASHA for the trials of a method, or None if every trial runs to its end.

    It does not know the trials of an earlier command, and says so.
    """
    if search.request.scheduler != "asha":
        return None
    if ended := sum(trial.ended for trial in search.folder.trials(method)):
        log.warning(
            "%s: ASHA begins again: it compares the trials that are left with each other, and not with the "
            "%d that have ended",
            method,
            ended,
        )
    return Halving(search.request.base.federation.rounds)


def outcome(trials: list[Trial]) -> MethodRecord:
    """Return the entry of sweep.json for a method's trials."""
    chosen = choose(trials)
    return {
        "trials": [trial.as_dict() for trial in trials],
        "cost": cost(trials),
        "chosen": chosen.as_dict() if chosen else None,
    }


def _repeated(search: Search, method: str) -> bool:
    """Repeat the chosen setting with new seeds.

    Returns whether there is a choice and every run came to its end.
    """
    request, folder = search.request, search.folder
    chosen, seeds = folder.chosen(method), request.final_seeds()
    if chosen is None or not seeds:
        return chosen is not None
    for seed in seeds:
        if seed in folder.finished(method) and not folder.final(method, seed).exists():
            log.warning("%s is gone and is run again", folder.final(method, seed))
        make_room(folder.final(method, seed), request.config(method, chosen, seed), final=True)
    left = [seed for seed in seeds if _state(folder.final(method, seed)) != FINISHED]
    if left:
        task = search.task(method, folder.of(method).resolve() / FINALS, chosen)
        _fit(search, task, _heard(search, task), {SEED: tune.grid_search(left)})
    finals: list[FinalRecord] = []
    for seed in seeds:
        where = folder.final(method, seed)
        finals.append(
            {"seed": seed, "folder": where.relative_to(folder.path).as_posix(), "state": _state(where)}
        )
    folder.note(method, {"final": finals})
    return all(final["state"] == FINISHED for final in finals)


def _state(folder: Path) -> str:
    return str(read_run(folder).get("state")) if (folder / RUN_FILE).exists() else FAILED


def _fit(
    search: Search,
    task: TrialTask,
    heard: Listener,
    param_space: Mapping[str, Any],
    seconds: float | None = None,
    **searcher: Any,  # arguments of Tune's TuneConfig
) -> dict[str, str]:
    """Run the proposed trials. Return name → error message for trials of a search that failed.

    Tune writes its own state as pickles. They lie in a temporary folder of this process, which is deleted at
    the end. So the folder of a sweep never holds any, and a search is resumed from the trials' records.

    Args:
        search: The sweep.
        task: What the trials share.
        heard: Called for every event of a trial.
        param_space: What Tune varies.
        seconds: The time for all of these trials.
        **searcher: What proposes settings in place of `param_space`, as arguments of Tune's TuneConfig.
    """
    runtime = search.request.base.runtime
    halving = _halving(search, task.method) if task.settings is None else None
    trainable = tune.with_resources(
        tune.with_parameters(federation, task=task), placement(runtime, search.clients)
    )
    config = tune.TuneConfig(
        metric=SCORE,
        mode="max",
        scheduler=halving,
        max_concurrent_trials=search.at_once or None,
        time_budget_s=seconds,
        reuse_actors=runtime.execution == "serial",
        **searcher,
    )
    with scratch_folder() as storage:
        failures = tune.FailureConfig(max_failures=0, fail_fast=False)
        run = tune.RunConfig(
            name="tune",
            storage_path=str(storage),
            verbose=0,
            callbacks=[Progress(heard, halving.ended if halving else frozenset())],
            failure_config=failures,
        )
        tuner = tune.Tuner(trainable, param_space=dict(param_space), tune_config=config, run_config=run)
        with _listeners_errors():
            grid = tuner.fit()
        results = [grid[index] for index in range(len(grid))]
    failed = [(result.config or {}, str(result.error)) for result in results if result.error is not None]
    return {trial_name(config[TRIAL]): error for config, error in failed if TRIAL in config}


@contextlib.contextmanager
def _listeners_errors() -> Iterator[None]:
    """Raise what a listener raised, such as an error of the sweep's folder, in place of Tune's own error."""
    try:
        yield
    except TuneError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError | RaffedError):
            cause = cause.__context__
        raise (error if cause is None else cause) from None


def placement(runtime: Runtime, clients: int) -> tune.PlacementGroupFactory:
    """Return the resources that a trial reserves.

    A federation in the trial's own process reserves a core and a share of a GPU, if asked. Otherwise the
    trial itself reserves nothing, and its client actors reserve a core each, or whole GPUs that they share.
    """
    share = runtime.gpu_fraction
    if runtime.execution == "serial":
        return tune.PlacementGroupFactory([{"CPU": 1, "GPU": share} if share else {"CPU": 1}])
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cores, gpus = float(resources.get("CPU", 1)), float(resources.get("GPU", 0))
    together = runtime.clients_per_actor
    actors = -(-clients // together) if together else max(runtime.actors, 1)
    if not share:
        each = min(1.0, int(cores / actors * 1e4) / 1e4)
        return tune.PlacementGroupFactory([{}, *({"CPU": each} for _ in range(actors))], strategy="PACK")
    on_one = round(1 / share)
    wanted = math.ceil(actors / on_one)
    if wanted > gpus:
        raise UsageError(
            f"a trial of {actors} actors with {share} GPU each needs {wanted} GPUs, but there are only "
            f"{gpus:g}"
        )
    bundle = {"CPU": min(float(on_one), int(cores / gpus * 1e4) / 1e4), "GPU": 1}
    return tune.PlacementGroupFactory([{}, *(bundle for _ in range(wanted))], strategy="PACK")


def _heard(search: Search, task: TrialTask) -> Listener:
    """Return a listener that treats Tune's events as final runs of this sweep."""

    def heard(state: str, trial: TunedTrial, report: Report) -> None:
        seed = trial.config[SEED]
        final = shown(f"seed {seed}", {**dict(task.settings or {}), SEED: seed}, state, report)
        search.watch(task.method, final, search.request.base.federation.rounds)

    return heard

"""The trainable of Ray Tune: one trial is one run in a folder of its own, reported to Tune round by round."""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import ray
from ray import tune
from ray.tune.experiment import Trial as TunedTrial

from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.errors import RayLostError, RunFolderError
from raffed.own.carried import RunCode
from raffed.own.gate import check_inside
from raffed.results.lock import A_SWEEP, gone
from raffed.results.origin import command_line, work_for
from raffed.results.runfile import RUN_FILE, SWEEP_FILE, read_run
from raffed.results.sweep_file import ADVICE
from raffed.runs.events import RoundEvent, handed_on
from raffed.runtime.ray.nodes import CodeVersions, check_same
from raffed.runtime.ray.own_ray import Patience, lost
from raffed.search.folder import (
    SweepFolder,
    SweepWatcher,
    Trial,
    damage,
    put_aside,
    read_trial,
    recorded,
    score,
    trial_name,
)
from raffed.search.request import ACCURACY, NEVER_RUN, PRUNED, RUNNING, MethodSettings, Request

# Pass on events of Ray Tune to the watchers of a sweep.


SCORE, ROUND, WARNINGS = "score", "round", "warnings"  # keys of a trial's report
TRIAL, SEED = "trial", "seed"  # keys of Tune's configuration: {TRIAL: settings}, or {SEED} for final runs
# What a trial reports after a round, Tune's own times, and the texts of new warnings, one on each line
Report: TypeAlias = Mapping[str, float | str]
Trials: TypeAlias = list[TunedTrial]
# State, Tune's trial, its last report ({} before the first)
Listener: TypeAlias = Callable[[str, TunedTrial, Report], None]
log = logging.getLogger(__name__)


class Progress(tune.Callback):
    """Passes on what happens to trials. `ended_early` holds Tune's names of those that a scheduler ended."""

    def __init__(self, heard: Listener, ended_early: Set[str] = frozenset()) -> None:
        self._heard, self._ended_early = heard, ended_early
        self._idle: Patience | None = None  # since no trial runs although some could

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        """Let Tune pickle its callbacks, which it does for a resumption that raffed does not use."""
        return tune.Callback, ()

    def on_step_end(self, iteration: int, trials: Trials, **info: Json) -> None:
        if (what := lost()) is not None:
            raise RayLostError(f"{what} died, and the sweep with it")
        self._watch_idle({trial.status for trial in trials})

    def on_trial_start(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        self._heard(RUNNING, trial, {})

    def on_trial_result(
        self, iteration: int, trials: Trials, trial: TunedTrial, result: dict[str, float | str], **info: Json
    ) -> None:
        self._heard(RUNNING, trial, result)

    def on_trial_complete(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        self._heard(PRUNED if trial.trial_id in self._ended_early else "done", trial, _last_report(trial))

    def on_trial_error(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        self._heard("failed", trial, _last_report(trial))

    def _watch_idle(self, states: set[str]) -> None:
        """Report after a while that trials wait for resources. In a shared cluster this may take long."""
        if "PENDING" not in states or "RUNNING" in states:
            self._idle = None
            return
        self._idle = self._idle or Patience()
        if waited := self._idle.due():
            free = ray.available_resources()  # type: ignore[no-untyped-call]
            cores, gpus = free.get("CPU", 0.0), free.get("GPU", 0.0)
            log.warning(
                "waiting for a trial to start, %s; free cores: %g, free GPUs: %g", waited, cores, gpus
            )


def _last_report(trial: TunedTrial) -> Report:
    """Return the last report of a trial that has ended. Its warnings were passed on when it came."""
    return {name: value for name, value in (trial.last_result or {}).items() if name != WARNINGS}


def with_warnings(report: Report, texts: list[str]) -> dict[str, float | str]:
    """Return a report with the warnings that came since the last one, and empty their list."""
    if not texts:
        return dict(report)
    lines = "\n".join(" ".join(text.split()) for text in texts)
    texts.clear()
    return {**report, WARNINGS: lines}


def warnings_in(report: Report) -> tuple[str, ...]:
    """Return the texts of the warnings in a report."""
    return tuple(str(report.get(WARNINGS, "")).splitlines())


@dataclass(frozen=True)
class TrialTask:
    """What all trials of one search share.

    `folder` holds their runs. `settings` are those of final runs, whose axis is the seed. `code` is the
    user's own, which a trial's process installs. `command` is the command that the sweep belongs to. `sent`
    is the code that the process of a trial must have; None if it cannot differ. `started_in` is the folder of
    the command, from which relative paths lead.
    """

    request: Request
    method: str
    folder: str
    settings: Mapping[str, Json] | None = None
    code: RunCode = field(default_factory=RunCode)
    accept_changed_code: bool = False
    command: str = field(default_factory=command_line)
    sent: CodeVersions | None = None
    started_in: str = field(default_factory=os.getcwd)

    def run(self, config: Mapping[str, Json]) -> tuple[RunConfig, Path]:
        """Return the run of one of Tune's configurations, and its folder."""
        if self.settings is None:
            settings = table_of(config[TRIAL])
            return self.request.config(self.method, settings), Path(self.folder) / trial_name(settings)
        seed = int(str(config[SEED]))
        return self.request.config(self.method, self.settings, seed), Path(self.folder) / f"seed-{seed}"


def federation(config: dict[str, Json], task: TrialTask) -> None:
    """Execute the run of a trial, or continue it where an earlier attempt stopped.

    The result has the same bits either way.
    """
    warned: list[str] = []  # nobody sees the standard error of a trial's process
    with handed_on(warned.append):
        execute_trial(config, task, warned)


def execute_trial(config: dict[str, Json], task: TrialTask, warned: list[str]) -> None:
    """Execute the run of a trial. Each report takes along the warnings that came before it."""
    from raffed.runs.run import resume, run

    check_same(task.sent)
    work_for(task.command)
    if Path(task.started_in).is_dir():  # it need not be there on another node
        os.chdir(task.started_in)  # Tune has left it
    asked, folder = task.run(config)

    def report(number: int, values: Mapping[tuple[str, str], float | None]) -> None:
        value = score(task.request, values)
        row = {ROUND: number, SCORE: -1.0 if math.isnan(value) else value}
        tune.report(with_warnings(row, warned))

    def watch(event: RoundEvent) -> None:
        if values := _values(task.request.score, event):
            report(event.round, values)

    sweep = folder.parents[2]
    if not (sweep / SWEEP_FILE).exists():  # this trial would make the folder again
        raise gone(sweep, A_SWEEP)
    if not (folder / RUN_FILE).exists():
        run(asked, folder, watch=watch)
        return
    done = int(read_run(folder).get("rounds_done", 0))
    for number, values in recorded(folder, upto=done, metric=task.request.score).items():
        report(number, values)  # for a scheduler that counts them
    resume(folder, watch=watch, runtime=asked.runtime, accept_changed_code=task.accept_changed_code)


def _values(score: str, event: RoundEvent) -> dict[tuple[str, str], float | None]:
    """Return (model, split) → value of what is scored; empty in a round without it."""
    if score != ACCURACY:  # one of the user's own metrics
        named = ((key.split(" "), value) for key, value in event.metrics.items())
        return {(model, split): value for (model, split, name), value in named if name == score}
    values = {
        ("global", "test"): event.accuracy,
        ("personal", "local_test"): event.personal,
        ("global", "val"): event.val,
        ("personal", "val"): event.val_personal,
    }
    return values if any(value is not None for value in values.values()) else {}


def make_room(folder: Path, asked: RunConfig, final: bool) -> None:
    """Leave in a folder the run that is asked for, or nothing.

    A damaged run, or that of another trial or seed, is moved aside. A final run of an earlier choice is
    deleted.
    """
    from raffed.runs.folder import run_config

    check_inside(folder.parent, folder)
    if why := damage(folder):
        put_aside(folder, why)
    elif (folder / RUN_FILE).exists() and run_config(folder).identity() != asked.identity():
        if final and not folder.is_symlink() and run_config(folder).seed == asked.seed:
            shutil.rmtree(folder)
        else:
            put_aside(folder, f"{folder}: holds another run")


# The records of a method's trials: their states when a search begins, and what happens to them during it.


REDUCTION = 3  # at a rung, one in so many trials goes on
Reports = Mapping[int, float]  # round → score, in the order of rounds


def first_rung(rounds: int) -> int:
    """Return the round after which ASHA ends trials for the first time."""
    return max(1, rounds // 9)


def at_rungs(reports: Reports, rounds: int) -> Reports:
    """Return the reports that decide rungs, and the last one.

    A rung is decided by the first report at or after its round.
    """
    if not reports:
        return {}
    milestones = [first_rung(rounds) * REDUCTION**power for power in range(rounds.bit_length())]
    decided = {
        min((number for number in reports if number >= milestone), default=0) for milestone in milestones
    }
    return {number: value for number, value in reports.items() if number in decided | {max(reports)}}


def known_trials(
    folder: SweepFolder, method: str, proposed: Sequence[MethodSettings] | None, axes: Sequence[str]
) -> list[Trial]:
    """Return the trials of a method by their records and their runs, in the order of their numbers.

    Damaged runs are moved aside, and their trials count as never run.

    Args:
        folder: The sweep's folder.
        method: The method.
        proposed: The settings of a grid; None if Optuna proposes, because its proposals are only in the
            records.
        axes: What is searched. Every setting that Optuna proposed has all of these axes.
    """
    recorded = folder.trials(method)
    if proposed is None:
        trials = [_in_order(folder, method, trial, axes) for trial in recorded]
    else:
        known, trials = {trial.name: trial for trial in recorded}, []
        for number, settings in enumerate(proposed):
            name = trial_name(settings)
            trial = known.get(name, Trial(name, settings, NEVER_RUN))
            trials.append(replace(trial, number=number, settings=settings))
    return [_as_it_stands(folder, method, trial) for trial in trials]


def _in_order(folder: SweepFolder, method: str, trial: Trial, axes: Sequence[str]) -> Trial:
    """Return a trial with its settings in the order of the axes.

    Its name and its folder follow that order, which a JSON file does not keep.
    """
    if set(trial.settings) == set(axes):
        ordered = replace(trial, settings={axis: trial.settings[axis] for axis in axes})
        if trial_name(ordered.settings) == trial.name:
            return ordered
    place = f"methods.{method}.trials, number {trial.number}"
    raise RunFolderError(
        f"{folder.path / SWEEP_FILE}: {place}: this is not a setting of this search; {ADVICE}"
    )


def _as_it_stands(folder: SweepFolder, method: str, known: Trial) -> Trial:
    request, where = folder.request, folder.trial(method, known.settings)
    make_room(where, request.config(method, known.settings), final=False)
    trial = read_trial(request, where, known)
    return trial if trial.ended else replace(trial, reports=())  # it reports again when it is resumed


class Ledger:
    """Receives what happens to the trials of a method, records it in sweep.json, and passes it on to the
    watchers.

    With ASHA it also records what trials report, which the report of a sweep draws.
    """

    def __init__(self, folder: SweepFolder, method: str, watch: SweepWatcher) -> None:
        self._folder, self._method, self._watch = folder, method, watch
        self._rounds = folder.request.base.federation.rounds
        self._begun: dict[str, Trial] = {}  # Tune's name of a trial → the trial, for those of this process
        self._reports: dict[str, dict[int, float]] = {}

    def heard(self, state: str, tuned: TunedTrial, report: Report) -> None:
        """Handle an event: "running" (also with every report), "pruned", "done" or "failed".

        `tuned` is Tune's trial.
        """
        name = tuned.trial_id
        if name not in self._begun:
            self._put_down(name, self._new(table_of(tuned.config[TRIAL])))
        trial = self._begun[name]
        if trial.state != RUNNING:
            return  # it ended already: Tune reports once more on a trial that it had to end
        if ROUND in report:
            self._reports.setdefault(name, {})[int(report[ROUND])] = float(report[SCORE])
        if state != RUNNING:
            self._put_down(name, self._ended(name, state))
        self._watch(self._method, shown(trial.name, trial.settings, state, report), self._rounds)

    def _new(self, settings: MethodSettings) -> Trial:
        """Return a trial that begins, with the number of the record that waits for it, or else the next."""
        name, known = trial_name(settings), self._folder.trials(self._method)
        taken = {trial.number for trial in self._begun.values()}
        waiting = [
            trial.number
            for trial in known
            if trial.name == name and not trial.ended and trial.number not in taken
        ]
        following = max((trial.number + 1 for trial in known), default=0)
        return Trial(name, settings, RUNNING, number=min(waiting, default=following))

    def _put_down(self, name: str, trial: Trial) -> None:
        self._begun[name] = trial
        self._folder.record(self._method, trial)

    def _ended(self, name: str, state: str) -> Trial:
        trial, reports = replace(self._begun[name], state=state), self._reports.get(name, {})
        if self._folder.request.scheduler == "asha":
            trial = replace(trial, reports=tuple(at_rungs(reports, self._rounds).items()))
        if state == PRUNED:
            return replace(trial, rounds=max(reports))
        outcome = read_trial(self._folder.request, self._folder.trial(self._method, trial.settings), trial)
        return outcome if outcome.ended else replace(outcome, reports=())


def shown(name: str, settings: MethodSettings, state: str, report: Report) -> Trial:
    """Return a trial as it is shown while it runs."""
    score = float(report.get(SCORE, -1.0))
    # Tune can only compare numbers, so NaN travels as a negative score
    score = math.nan if score < 0 else score
    rounds, seconds = int(report.get(ROUND, 0)), float(report.get("time_total_s", 0.0))
    return Trial(name, settings, state, rounds, seconds, score, warnings=warnings_in(report))

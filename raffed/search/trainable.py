"""The trainable of Ray Tune: one trial is one run in a folder of its own, reported to Tune round by round."""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import ray
from ray import tune
from ray.tune.experiment import Trial as TunedTrial

from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.errors import RayLostError
from raffed.methods.authors import is_authors
from raffed.own.carried import RunCode
from raffed.own.gate import check_inside
from raffed.results.origin import command_line, work_for
from raffed.results.runfile import RUN_FILE, SWEEP_FILE, read_run
from raffed.runs.events import handed_on
from raffed.runs.folder_place import A_SWEEP, gone
from raffed.runtime.ray.nodes import CodeVersions, check_same
from raffed.runtime.ray.own_ray import Patience, lost
from raffed.search.request import ACCURACY, PRUNED, RUNNING, Request
from raffed.search.trials import damage, is_run_of, put_aside, recorded, score, trial_name

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent

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
        self,
        iteration: int,
        trials: Trials,
        trial: TunedTrial,
        result: dict[str, float | str],
        **info: Json,
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
    the command, from which relative paths of authors' engines lead.
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
    if is_authors(task.method):
        os.chdir(task.started_in)  # Tune has left it
    asked, folder = task.run(config)

    def report(number: int, values: Mapping[tuple[str, str], float | None]) -> None:
        value = score(task.request, values)
        row = {ROUND: number, SCORE: -1.0 if math.isnan(value) else value}
        tune.report(with_warnings(row, warned))

    def watch(event: RoundEvent) -> None:
        if values := _values(task.request.score, event):
            report(event.round, values)

    check_sweep(folder.parents[2])
    if not (folder / RUN_FILE).exists():
        run(asked, folder, watch=watch)
        return
    done = int(read_run(folder).get("rounds_done", 0))
    for number, values in recorded(folder, upto=done, metric=task.request.score).items():
        report(number, values)  # for a scheduler that counts them
    resume(folder, watch=watch, runtime=asked.runtime, accept_changed_code=task.accept_changed_code)


def check_sweep(sweep: Path) -> None:
    """Refuse to begin a trial of a sweep whose folder is gone, because the trial would make it again.

    Raises:
        FolderLostError: The folder has no sweep.json.
    """
    if not (sweep / SWEEP_FILE).exists():
        raise gone(sweep, A_SWEEP)


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
    elif (folder / RUN_FILE).exists() and not is_run_of(folder, asked):
        if final and not folder.is_symlink() and run_config(folder).seed == asked.seed:
            shutil.rmtree(folder)
        else:
            put_aside(folder, f"{folder}: holds another run")

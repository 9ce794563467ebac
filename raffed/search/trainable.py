"""The trainable of Ray Tune: one trial is one run in a folder of its own, reported to Tune round by round."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import ray
from ray import tune
from ray.tune.experiment import Trial as TunedTrial

from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.errors import RayLostError, RunFolderError
from raffed.own.carried import RunCode
from raffed.own.gate import check_inside
from raffed.results.origin import command_line, work_for
from raffed.results.runfile import SWEEP_FILE
from raffed.runs.events import handed_on
from raffed.runs.folder_place import A_SWEEP, gone
from raffed.runtime.ray.nodes import CodeVersions, check_same
from raffed.runtime.ray.own_ray import Patience, lost
from raffed.search.request import ACCURACY, Request
from raffed.search.trials import damage, is_run_of, put_aside, recorded, score, trial_name

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent

# Pass on events of Ray Tune, from its callbacks and from a scheduler's decisions, to the watchers of a
# sweep.


# What a trial reports after a round, Tune's own times, and the texts of new warnings, one on each line
Report: TypeAlias = Mapping[str, float | str]
Trials: TypeAlias = list[TunedTrial]
# State, Tune's trial, its last report ({} before the first)
Listener: TypeAlias = Callable[[str, TunedTrial, Report], None]
_listeners: list[Listener] = []
_handed: set[tuple[str, float | str]] = set()  # trials and rounds whose warnings were passed on
_idle: list[Patience] = []  # holds one entry while no trial runs although some could
WARNINGS = "warnings"
log = logging.getLogger(__name__)


class Progress(tune.Callback):
    """Passes on what happens to trials. Tune pickles its callbacks, so this one holds no data."""

    def on_step_end(self, iteration: int, trials: Trials, **info: Json) -> None:
        if (what := lost()) is not None:
            raise RayLostError(f"{what} died, and the sweep with it")
        _watch_idle({trial.status for trial in trials})

    def on_trial_start(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        tell("running", trial, {})

    def on_trial_result(
        self,
        iteration: int,
        trials: Trials,
        trial: TunedTrial,
        result: dict[str, float | str],
        **info: Json,
    ) -> None:
        tell("running", trial, result)

    def on_trial_complete(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        tell("done", trial, trial.last_result or {})

    def on_trial_error(self, iteration: int, trials: Trials, trial: TunedTrial, **info: Json) -> None:
        tell("failed", trial, trial.last_result or {})


class listening:  # noqa: N801  # a context manager, read as a verb
    """While the block runs, `heard` is called for every event. `seconds` is how long the block has run."""

    def __init__(self, heard: Listener) -> None:
        self._heard, self.seconds = heard, 0.0

    def __enter__(self) -> listening:
        self._began = time.monotonic()
        _listeners.append(self._heard)
        return self

    def __exit__(self, *raised: object) -> None:
        _listeners.remove(self._heard)
        _handed.clear()
        self.seconds = time.monotonic() - self._began


def _watch_idle(states: set[str]) -> None:
    """Report after a while that trials are waiting for resources. In a shared cluster this may take long."""
    if "PENDING" not in states or "RUNNING" in states:
        _idle.clear()
        return
    if not _idle:
        _idle.append(Patience())
    if waited := _idle[0].due():
        free = ray.available_resources()  # type: ignore[no-untyped-call]
        cores, gpus = free.get("CPU", 0.0), free.get("GPU", 0.0)
        log.warning("waiting for a trial to start, %s; free cores: %g, free GPUs: %g", waited, cores, gpus)


def tell(state: str, trial: TunedTrial, report: Report) -> None:
    """Tell every listener what happened to one of Tune's trials.

    Tune passes on a trial's last report again when the trial ends. Its warnings are only passed on once.
    """
    if WARNINGS in report:
        at = str(trial.trial_id), report.get("round", 0)
        report = {key: value for key, value in report.items() if key != WARNINGS or at not in _handed}
        _handed.add(at)
    for heard in _listeners:
        heard(state, trial, report)


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


TRIAL, NUMBER, SETTINGS, SEED = (
    "trial",
    "number",
    "settings",
    "seed",
)  # keys of Tune's configuration: {TRIAL: {NUMBER, SETTINGS}}, or {SEED} for final runs


@dataclass(frozen=True)
class TrialTask:
    """What all trials of one search share.

    `folder` holds their runs. `settings` are those of final runs, whose axis is the seed. `code` is the
    user's own, which a trial's process installs. `command` is the command that the sweep belongs to. `sent`
    is the code that the process of a trial must have; None if it cannot differ.
    """

    request: Request
    method: str
    folder: str
    settings: Mapping[str, Json] | None = None
    code: RunCode = field(default_factory=RunCode)
    accept_changed_code: bool = False
    command: str = field(default_factory=command_line)
    sent: CodeVersions | None = None

    def run(self, config: Mapping[str, Json]) -> tuple[RunConfig, Path]:
        """Return the run of one of Tune's configurations, and its folder."""
        if self.settings is None:
            settings = table_of(table_of(config[TRIAL])[SETTINGS])
            return self.request.config(self.method, settings), Path(self.folder) / trial_name(settings)
        seed = int(str(config[SEED]))
        return self.request.config(self.method, self.settings, seed), Path(self.folder) / f"seed-{seed}"


def federation(config: dict[str, Json], task: TrialTask) -> None:
    """Execute the run of a trial, or continue it where an earlier attempt stopped.

    The result has the same bits either way. A final run of an earlier choice is replaced. A run that turns
    out to be damaged is moved aside and executed again.
    """
    warned: list[str] = []  # nobody sees the standard error of a trial's process
    with handed_on(warned.append):
        execute_trial(config, task, warned)


def execute_trial(config: dict[str, Json], task: TrialTask, warned: list[str]) -> None:
    """Execute the run of a trial. Each report takes along the warnings that came before it."""
    from raffed.results.runfile import RUN_FILE
    from raffed.runs.run import resume, run

    check_same(task.sent)
    work_for(task.command)
    asked, folder = task.run(config)

    def watch(event: RoundEvent) -> None:
        if values := _values(task.request.score, event):
            tune.report(with_warnings(_report(task.request, event.round, values), warned))

    check_sweep(folder.parents[2])
    make_room(folder, asked, final=task.settings is not None)
    if not (folder / RUN_FILE).exists():
        run(asked, folder, watch=watch)
        return
    for report in _again(task.request, folder):
        tune.report(with_warnings(report, warned))
    try:
        resume(
            folder,
            watch=watch,
            runtime=asked.runtime,
            accept_changed_code=task.accept_changed_code,
        )
    except RunFolderError:
        why = damage(folder)
        if not why:
            raise
        put_aside(folder, why)
        run(asked, folder, watch=watch)


def check_sweep(sweep: Path) -> None:
    """Refuse to begin a trial of a sweep whose folder is gone, because the trial would make it again.

    Raises:
        FolderLostError: The folder has no sweep.json.
    """
    if not (sweep / SWEEP_FILE).exists():
        raise gone(sweep, A_SWEEP)


def _values(score: str, event: RoundEvent) -> dict[tuple[str, str], float | None]:
    """Return (model, split) → value of what is scored; empty in a round without it."""
    if score != ACCURACY:
        return _own_values(score, event)
    values = {
        ("global", "test"): event.accuracy,
        ("personal", "local_test"): event.personal,
        ("global", "val"): event.val,
        ("personal", "val"): event.val_personal,
    }
    return values if any(value is not None for value in values.values()) else {}


def _own_values(score: str, event: RoundEvent) -> dict[tuple[str, str], float | None]:
    """Return (model, split) → value of one of the user's own metrics."""
    named = ((key.split(" "), value) for key, value in event.metrics.items())
    return {(model, split): value for (model, split, name), value in named if name == score}


def make_room(folder: Path, asked: RunConfig, final: bool) -> None:
    """Leave in a folder the run that is asked for, or nothing.

    A damaged run, or that of another trial or seed, is moved aside. A final run of an earlier choice is
    deleted.
    """
    from raffed.results.runfile import RUN_FILE
    from raffed.runs.folder import run_config

    check_inside(folder.parent, folder)
    if why := damage(folder):
        put_aside(folder, why)
    elif (folder / RUN_FILE).exists() and not is_run_of(folder, asked):
        if final and not folder.is_symlink() and run_config(folder).seed == asked.seed:
            shutil.rmtree(folder)
        else:
            put_aside(folder, f"{folder}: holds another run")


def _again(request: Request, folder: Path) -> Iterator[dict[str, float]]:
    """Yield the reports of the rounds that are done and kept, for a scheduler that counts them."""
    from raffed.results.runfile import read_run

    done = int(read_run(folder).get("rounds_done", 0))
    for number, values in sorted(recorded(folder, upto=done, metric=request.score).items()):
        yield _report(request, number, values)


def _report(
    request: Request, number: int, values: Mapping[tuple[str, str], float | None]
) -> dict[str, float]:
    found = score(request, values)
    return {"round": number, "score": -1.0 if math.isnan(found) else found}

"""Pass on events of Ray Tune, from its callbacks and from a scheduler's decisions, to the watchers of
a sweep.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import ray
from ray import tune
from ray.tune.experiment import Trial as TunedTrial

from raffed.config.validation import Json
from raffed.errors import RayLostError
from raffed.runtime.ray.own_ray import lost
from raffed.runtime.ray.patience import Patience

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


__all__ = [
    "Listener",
    "Progress",
    "Report",
    "TunedTrial",
    "listening",
    "tell",
    "warnings_in",
    "with_warnings",
]

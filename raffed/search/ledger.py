"""The records of a method's trials: their states when a search begins, and what happens to them during it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial as TunedTrial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.sample import Domain

from raffed.config.validation import Json, table_of
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import SWEEP_FILE
from raffed.results.sweep_file import ADVICE
from raffed.search.folder import SweepFolder
from raffed.search.request import NEVER_RUN, PRUNED, MethodSettings, Request
from raffed.search.trainable import NUMBER, SETTINGS, TRIAL, Report, make_room, tell, warnings_in
from raffed.search.trials import SweepWatcher, Trial, read_trial, reported, trial_name

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

# Resume a search from the records of its trials: new instances of ASHA and Optuna are told what they had
# learned.
#
# Nothing that either of them would write about itself is read. Those files are pickles, which can run any
# code.


SCORE, ROUND = "score", "round"  # keys of a trial's report
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


class Halving(ASHAScheduler):
    """ASHA (asynchronous successive halving, Li et al. 2020) that can be told about trials that have ended
    already.

    A trial that has done its last round always comes to its end, because stopping it would save nothing. It
    then writes its results.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(ROUND, SCORE, "max", rounds + 1, first_rung(rounds), REDUCTION)
        self._rounds = rounds

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Json) -> bool:
        """Ignore what Tune says is maximised, because it is known."""
        return True

    def on_trial_result(
        self, tune_controller: TuneController, trial: TunedTrial, result: dict[str, float]
    ) -> str:
        """Return whether a trial goes on. Listeners are told if it does not."""
        decision: str = super().on_trial_result(tune_controller, trial, result)
        if decision != self.STOP or result[ROUND] >= self._rounds:
            return self.CONTINUE
        tell(PRUNED, trial, result)
        return decision

    def replay(self, number: int, reports: Reports) -> None:
        """Put the reports of an ended trial on the rungs that it reached.

        The order in which trials are replayed does not matter, because the threshold of a rung is a
        percentile of all its values.
        """
        past: Any = SimpleNamespace(trial_id=f"replayed-{number}")
        controller: Any = None  # ASHA does not use it
        last = {ROUND: 0, SCORE: -1.0}
        self.on_trial_add(controller, past)
        for round, value in reports.items():
            last = {ROUND: round, SCORE: value}
            super().on_trial_result(controller, past, last)
        self.on_trial_complete(controller, past, last)


class Suggestions(Searcher):
    """Propose what Optuna proposes, up to `budget` settings. `past` holds the trials that were proposed
    before.

    The new study is asked for as many settings as there were, in their order, and is told the outcome after
    each. Its random numbers and its model are then those of the earlier search. So with one trial at a time,
    the next proposals are those of a search without interruption. With several at a time, proposals depend on
    which trial ends first. If the study proposes something else than was recorded (several at a time, or
    another version of Optuna), the recorded setting is told as an additional point.

    Failed trials are told as failed, also those that are tried again, because the uninterrupted search went
    on without them.

    Args:
        values: Number of a trial → the last score it reported.
    """

    def __init__(
        self,
        space: Mapping[str, Domain],
        seed: int,
        budget: int,
        past: Sequence[Trial],
        values: Mapping[int, float],
    ) -> None:
        super().__init__(SCORE, "max")
        self._study, self._budget = _optuna(space, seed), budget
        self._waiting: list[tuple[int, MethodSettings]] = []  # proposed but not ended
        self._told: set[int] = set()
        self._beside: dict[int, MethodSettings] = {}  # settings that the study did not propose itself
        self._running: dict[str, int] = {}  # Tune's name of a trial → number
        self._next = max((trial.number + 1 for trial in past), default=0)
        known = {trial.number: trial for trial in past}
        for number in range(self._next):
            self._replay(number, known.get(number), values.get(number))

    @property
    def left(self) -> int:
        """Return how many settings are still to be tried."""
        return len(self._waiting) + max(0, self._budget - self._next)

    def suggest(self, trial_id: str) -> dict[str, Json] | None:
        """Return the next setting: one whose trial was interrupted, or a new one; None if the budget
        is spent.
        """
        if self._waiting:
            number, settings = self._waiting.pop(0)
        elif self._next < self._budget:
            number, self._next = self._next, self._next + 1
            settings = self._study.suggest(str(number)) or {}
        else:
            return None
        self._running[trial_id] = number
        return {TRIAL: {NUMBER: number, SETTINGS: settings}}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, float] | None = None, error: bool = False
    ) -> None:
        """Tell the study that a trial has ended."""
        number = self._running.pop(trial_id)
        if number not in self._told:
            self._tell(number, None if result is None else result.get(SCORE), error)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing, because a search is resumed from the trials' records only."""

    def _replay(self, number: int, trial: Trial | None, value: float | None) -> None:
        settings = self._study.suggest(str(number)) or {}
        if trial is not None and trial.settings != settings:
            self._study.on_trial_complete(str(number), error=True)
            self._beside[number] = settings = trial.settings
        if trial is None or not trial.ended:
            self._waiting.append((number, settings))
        failed = trial is not None and trial.state == "failed"
        if value is not None or failed:
            self._tell(number, value, error=failed or value is None)

    def _tell(self, number: int, value: float | None, error: bool) -> None:
        self._told.add(number)
        if number not in self._beside:
            self._study.on_trial_complete(str(number), None if value is None else {SCORE: value}, error)
        elif value is not None:
            try:
                self._study.add_evaluated_point(self._beside[number], value)
            except ValueError as error:
                raise UsageError(
                    f"trial {number} of the search has settings outside of its ranges ({error})"
                ) from error


def _optuna(space: Mapping[str, Domain], seed: int) -> Searcher:
    """Return a new study over `space` (in Tune's ranges), which `seed` determines."""
    from ray.tune.search.optuna import OptunaSearch

    log = logging.getLogger("optuna")
    usual = log.level
    log.setLevel(logging.WARNING)  # it would print that it made a study
    try:
        return OptunaSearch(
            OptunaSearch.convert_search_space(dict(space)), metric=SCORE, mode="max", seed=seed
        )
    except AssertionError as error:  # what Ray raises if Optuna is not installed
        raise UsageError("--search optuna needs Optuna: pip install 'raffed[sweep]'") from error
    finally:
        log.setLevel(usual)


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
    before = folder.trials(method)
    if proposed is None:
        before = [_in_order(folder, method, trial, axes) for trial in before]
    else:
        known = {trial.name: trial for trial in before}
        fresh = [Trial(trial_name(one), one, NEVER_RUN, number=number) for number, one in enumerate(proposed)]
        before = [
            replace(known.get(trial.name, trial), number=trial.number, settings=trial.settings)
            for trial in fresh
        ]
    return [_as_it_stands(folder, method, trial) for trial in before]


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
    trial = read_trial(request, where, known.settings, known)
    return replace(trial, reports=tuple(reported(request, where, trial).items())) if trial.ended else trial


def recordable(trial: Trial, request: Request, learns: bool) -> Trial:
    """Return a trial with only those reports that sweep.json holds. A search that does not learn
    needs none.
    """
    reports = at_rungs(dict(trial.reports), request.base.federation.rounds) if learns else {}
    return replace(trial, reports=tuple(reports.items()))


class Ledger:
    """Receives what happens to the trials of a method, records it in sweep.json, and passes it on to the
    watchers.

    `learns` says whether the search learns from what trials report. Reports are then recorded too.
    """

    def __init__(self, folder: SweepFolder, method: str, watch: SweepWatcher, learns: bool) -> None:
        self._folder, self._method, self._watch, self._learns = folder, method, watch, learns
        self._rounds = folder.request.base.federation.rounds
        self._known: dict[int, Trial] = {}  # the trials that this process began
        self._reports: dict[int, dict[int, float]] = {}

    def heard(self, state: str, tuned: TunedTrial, report: Report) -> None:
        """Handle an event: "running" (also with every report), "pruned", "done" or "failed".

        `tuned` is Tune's trial.
        """
        proposal = table_of(tuned.config[TRIAL])
        settings, number = table_of(proposal[SETTINGS]), int(str(proposal[NUMBER]))
        if ROUND in report:
            self._reports.setdefault(number, {})[int(report[ROUND])] = float(report[SCORE])
        if number not in self._known and state == "running":
            self._put_down(Trial(trial_name(settings), settings, state, number=number))
        known = self._known.get(number)
        if known is None or known.state != "running":
            return  # never begun, or ended already: Tune reports once more on a trial that it had to end
        if state != "running":
            self._put_down(self._ended(known, state))
        self._watch(self._method, shown(trial_name(settings), settings, state, report), self._rounds)

    def _put_down(self, trial: Trial) -> None:
        self._known[trial.number] = trial
        self._folder.record(self._method, trial)

    def _ended(self, trial: Trial, state: str) -> Trial:
        reports = self._reports.get(trial.number, {})
        known = replace(trial, state=state, reports=tuple(reports.items()), rounds=max(reports, default=0))
        known = recordable(known, self._folder.request, self._learns)
        if state == PRUNED:
            return known
        try:
            found = read_trial(
                self._folder.request, self._folder.trial(self._method, trial.settings), trial.settings, known
            )
        except RunFolderError as error:
            return replace(known, state="failed", error=str(error), reports=())
        # An interrupted trial reports again when it is resumed
        return found if found.ended else replace(found, reports=())


def shown(name: str, settings: MethodSettings, state: str, report: Report) -> Trial:
    """Return a trial as it is shown while it runs."""
    score = float(report.get(SCORE, -1.0))
    # Tune can only compare numbers, so NaN travels as a negative score
    score = math.nan if score < 0 else score
    rounds, seconds = int(report.get(ROUND, 0)), float(report.get("time_total_s", 0.0))
    return Trial(name, settings, state, rounds, seconds, score, warnings=warnings_in(report))

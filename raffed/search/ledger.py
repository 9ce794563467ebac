"""The records of a method's trials: their states when a search begins, and what happens to them during it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ray import tune
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as TunedTrial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.sample import Domain

from raffed.config.search_axis import NumberRange
from raffed.config.validation import Json, table_of
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import SWEEP_FILE
from raffed.results.sweep_file import ADVICE
from raffed.search.folder import SweepFolder
from raffed.search.request import NEVER_RUN, PRUNED, RUNNING, MethodSettings
from raffed.search.space import Axes, Axis, is_drawn
from raffed.search.trainable import ROUND, SCORE, TRIAL, Report, make_room, warnings_in
from raffed.search.trials import SweepWatcher, Trial, read_trial, trial_name

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
    that its model of the scores learns from it. Its random numbers depend on how many trials have ended,
    because a search that is resumed would otherwise draw the settings of its first trials again.

    Raises:
        UsageError: A trial has settings outside of the ranges.
    """
    from ray.tune.search.optuna import OptunaSearch

    ended = [trial for trial in before if trial.ended]
    waiting = [_as_point(trial) for trial in before if not trial.ended]
    logging.getLogger("optuna").setLevel(logging.WARNING)  # it would print that it made a study
    try:
        search = OptunaSearch(
            OptunaSearch.convert_search_space({TRIAL: {name: domain_of(axes[name]) for name in axes}}),
            metric=SCORE,
            mode="max",
            points_to_evaluate=waiting or None,
            seed=seed + len(ended),
        )
        for trial in ended:
            last = trial.reports[-1][1] if trial.reports else trial.score
            told = -1.0 if math.isnan(last) else last
            search.add_evaluated_point(_as_point(trial), told, error=trial.diverged)
    except ValueError as error:
        raise UsageError(f"a trial of the search has settings outside of its ranges ({error})") from error
    return search


def _as_point(trial: Trial) -> dict[str, Json]:
    """Return the settings of a trial with the names that Tune gives to what is below TRIAL."""
    return {f"{TRIAL}/{name}": value for name, value in trial.settings.items()}


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

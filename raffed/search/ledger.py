"""The records of a method's trials: their states when a search begins, and what happens to them during it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from raffed.config.validation import table_of
from raffed.errors import RunFolderError
from raffed.results.sweep_file import ADVICE, SWEEP_FILE
from raffed.search.events import Report, TunedTrial, warnings_in
from raffed.search.folder import SweepFolder
from raffed.search.replay import ROUND, SCORE, at_rungs
from raffed.search.request import NEVER_RUN, PRUNED, MethodSettings, Request
from raffed.search.trainable import NUMBER, SETTINGS, TRIAL, make_room
from raffed.search.trials import SweepWatcher, Trial, read_trial, reported, trial_name


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

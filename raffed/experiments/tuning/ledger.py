"""The records of a method's trials: how they stand when a search begins, and what becomes of them while
it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from raffed.errors import RunFolderError
from raffed.experiments.tuning.folder import SweepFolder
from raffed.experiments.tuning.replay import ROUND, SCORE, at_rungs
from raffed.experiments.tuning.request import NEVER_RUN, PRUNED, MethodSettings, Request
from raffed.experiments.tuning.trainable import NUMBER, SETTINGS, TRIAL, make_room
from raffed.experiments.tuning.trials import SweepWatcher, Trial, read_trial, reported, trial_name
from raffed.results.sweep_file import ADVICE, SWEEP_FILE


def standing(
    folder: SweepFolder, method: str, proposed: Sequence[MethodSettings] | None, axes: Sequence[str]
) -> list[Trial]:
    """The trials of a method as they stand, by their records and their runs, in the order of their numbers.
    Damaged runs are put aside: their trials stand as never run.

    Args:
        proposed: the settings of a grid; None where Optuna proposes, whose proposals are in the records
        alone. axes: what is searched; every setting that Optuna proposed has all of it.
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
    """A trial with its settings in the order of the axes, which its name and its folder follow and a JSON
    file does not keep.
    """
    if set(trial.settings) == set(axes):
        ordered = replace(trial, settings={axis: trial.settings[axis] for axis in axes})
        if trial_name(ordered.settings) == trial.name:
            return ordered
    place = f"methods.{method}.trials, number {trial.number}"
    raise RunFolderError(f"{folder.path / SWEEP_FILE}: {place}: no setting of this search; {ADVICE}")


def _as_it_stands(folder: SweepFolder, method: str, known: Trial) -> Trial:
    request, where = folder.request, folder.trial(method, known.settings)
    make_room(where, request.config(method, known.settings), final=False)
    trial = read_trial(request, where, known.settings, known)
    return replace(trial, reports=tuple(reported(request, where, trial).items())) if trial.ended else trial


def recordable(trial: Trial, request: Request, learns: bool) -> Trial:
    """A trial with those of its reports that sweep.json holds: a search that learns from none needs none."""
    reports = at_rungs(dict(trial.reports), request.base.federation.rounds) if learns else {}
    return replace(trial, reports=tuple(reports.items()))


class Ledger:
    """Hears what happens to the trials of a method, puts down in sweep.json how they stand, and tells it to
    whoever watches.

    learns: whether the search learns from what trials report, so that it is put down as well.
    """

    def __init__(self, folder: SweepFolder, method: str, watch: SweepWatcher, learns: bool) -> None:
        self._folder, self._method, self._watch, self._learns = folder, method, watch, learns
        self._rounds = folder.request.base.federation.rounds
        self._known: dict[int, Trial] = {}  # begun by this process
        self._reports: dict[int, dict[int, float]] = {}

    def heard(self, state: str, tuned: Any, report: Mapping[str, Any]) -> None:
        """An event: "running", also with every report; "pruned", "done" or "failed". tuned: Tune's trial."""
        settings, number = tuned.config[TRIAL][SETTINGS], int(tuned.config[TRIAL][NUMBER])
        if ROUND in report:
            self._reports.setdefault(number, {})[int(report[ROUND])] = float(report[SCORE])
        if number not in self._known and state == "running":
            self._put_down(Trial(trial_name(settings), settings, state, number=number))
        known = self._known.get(number)
        if known is None or known.state != "running":
            return  # never begun, or ended already: Tune speaks once more of a trial that it was told to end
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
        return (
            found if found.ended else replace(found, reports=())
        )  # what is cut off reports again when it goes on


def shown(name: str, settings: MethodSettings, state: str, report: Mapping[str, Any]) -> Trial:
    """A trial as it is shown while it goes on."""
    score = float(report.get(SCORE, -1.0))
    score = math.nan if score < 0 else score  # Tune compares with numbers only
    return Trial(
        name, settings, state, int(report.get(ROUND, 0)), float(report.get("time_total_s", 0.0)), score
    )

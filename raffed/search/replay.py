"""Resume a search from the records of its trials: new instances of ASHA and Optuna are told what they had
learned.

Nothing that either of them would write about itself is read. Those files are pickles, which can run any code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.sample import Domain

from raffed.config.validation import Json
from raffed.errors import UsageError
from raffed.search.events import TunedTrial, tell
from raffed.search.request import PRUNED, MethodSettings
from raffed.search.trainable import NUMBER, SETTINGS, TRIAL
from raffed.search.trials import Trial

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

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

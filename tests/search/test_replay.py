"""A search that is told again what its trials reported decides and proposes what the uninterrupted one
would have.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from raffed import Data, RunConfig
from raffed.errors import RunFolderError, UsageError
from raffed.search.axes import continuous
from raffed.search.folder import SweepFolder
from raffed.search.ledger import Halving, Suggestions, at_rungs, first_rung, known_trials
from raffed.search.request import Request
from raffed.search.trainable import listening
from raffed.search.trials import Trial, read_trial, reported, trial_name
from tests.forging import FEWEST

ROUNDS = 9
NOBODY: Any = None


def scores(number: int) -> dict[int, float]:
    """What trial `number` would report after each round: better or worse than others in an order that
    changes with the round.
    """
    return {round: abs(math.sin(7.0 * number + round)) for round in range(1, ROUNDS + 1)}


def run(scheduler: Halving, number: int) -> dict[int, float]:
    """One trial under a scheduler, alone: the reports it made before it ended."""
    trial: Any = SimpleNamespace(trial_id=f"t{number}")
    scheduler.on_trial_add(NOBODY, trial)
    made: dict[int, float] = {}
    for round, value in scores(number).items():
        made[round] = value
        if scheduler.on_trial_result(NOBODY, trial, {"round": round, "score": value}) == TrialScheduler.STOP:
            break
    scheduler.on_trial_complete(NOBODY, trial, {"round": round, "score": value})
    return made


def test_asha_told_of_the_trials_before_ends_the_trials_after_them_at_the_same_rounds() -> None:
    whole = Halving(ROUNDS)
    made = [run(whole, number) for number in range(12)]
    assert len({len(one) for one in made}) > 1  # some end early, at different rungs
    for cut in range(12):
        for keep in (lambda reports: reports, lambda reports: at_rungs(reports, ROUNDS)):
            resumed = Halving(ROUNDS)
            for number in reversed(range(cut)):  # the order of replaying is of no account
                resumed.replay(number, keep(made[number]))
            assert [run(resumed, number) for number in range(cut, 12)] == made[cut:]


def test_a_trial_that_asha_ends_is_told_once_and_one_in_its_last_round_is_never_ended() -> None:
    heard: list[str] = []
    scheduler = Halving(ROUNDS)
    scheduler.replay(0, {1: 0.1, 3: 0.1, 9: 1.0})
    with listening(lambda state, trial, report: heard.append(f"{state} {trial.trial_id} {report['round']}")):
        scheduler.on_trial_add(NOBODY, SimpleNamespace(trial_id="late"))
        late: Any = SimpleNamespace(trial_id="late")
        decisions = [scheduler.on_trial_result(NOBODY, late, {"round": r, "score": 0.5}) for r in (1, 3, 9)]
        assert decisions == [TrialScheduler.CONTINUE] * 3
        bad: Any = SimpleNamespace(trial_id="bad")
        scheduler.on_trial_add(NOBODY, bad)
        assert scheduler.on_trial_result(NOBODY, bad, {"round": 1, "score": 0.0}) == TrialScheduler.STOP
    assert heard == ["pruned bad 1"]


@pytest.mark.parametrize(
    ("rounds", "reported", "kept"),
    [
        (9, range(1, 10), [1, 3, 9]),
        (9, range(1, 6), [1, 3, 5]),  # and the last one
        (9, [2, 4, 6, 8, 9], [2, 4, 9]),
        (90, [5, 10, 15, 90], [10, 90]),  # rungs at 10, 30, 90; after 15 comes 90
        (3, [], []),
    ],
)
def test_of_the_reports_those_that_a_rung_was_decided_by_are_kept(
    rounds: int, reported: list[int], kept: list[int]
) -> None:
    assert list(at_rungs(dict.fromkeys(reported, 0.5), rounds)) == kept
    assert first_rung(rounds) == max(1, rounds // 9)


SPACE = continuous(
    {"a": {"grid_search": [0.001, 1.0]}, "b": {"grid_search": [0.0, 1.0]}, "c": {"grid_search": [1, 2]}}
)
BUDGET = 16  # the first ten are drawn at random, the others from a model of the scores


def objective(settings: dict[str, Any]) -> float:
    return -((math.log10(settings["a"]) + 2) ** 2) - (settings["b"] - 0.3) ** 2 - 0.1 * settings["c"]


def carried_on(before: list[Trial], fails: int = -1) -> list[Trial]:
    """The trials of a search, one at a time, of which some are there already."""
    done = {trial.number: trial for trial in before if trial.ended}
    values = {number: trial.reports[-1][1] for number, trial in done.items()}
    search = Suggestions(SPACE, seed=3, budget=BUDGET, past=before, values=values)
    while search.left:
        config = search.suggest("x")
        assert config is not None
        number, settings = config["trial"]["number"], config["trial"]["settings"]
        value = objective(settings)
        search.on_trial_complete("x", None if number == fails else {"score": value}, error=number == fails)
        state = "failed" if number == fails else "finished"
        done[number] = Trial(
            trial_name(settings), settings, state, score=value, number=number, reports=((1, value),)
        )
    return [done[number] for number in sorted(done)]


def test_optuna_told_of_the_trials_before_proposes_what_it_would_have_proposed_next() -> None:
    pytest.importorskip("optuna")
    whole = carried_on([])
    assert [trial.number for trial in whole] == list(range(BUDGET))
    for cut in (1, 5, 10, 13):
        assert carried_on(whole[:cut]) == whole
        interrupted = [*whole[:cut], Trial(whole[cut].name, whole[cut].settings, "running", number=cut)]
        assert carried_on(interrupted) == whole


def test_a_failed_trial_is_tried_again_and_the_proposals_after_it_stay_the_same() -> None:
    pytest.importorskip("optuna")
    whole = carried_on([], fails=4)
    resumed = carried_on(
        [
            trial if trial.state == "finished" else Trial(trial.name, trial.settings, "failed", number=4)
            for trial in whole[:12]
        ],
        fails=4,
    )
    assert [trial.settings for trial in resumed] == [trial.settings for trial in whole]


def test_recorded_settings_that_optuna_would_not_propose_are_told_beside_its_own_and_tried_as_they_are() -> (
    None
):
    """As with several trials at a time, or another version of Optuna."""
    pytest.importorskip("optuna")
    settings = {"a": 0.5, "b": 0.25, "c": 2}
    done = Trial(trial_name(settings), settings, "finished", score=0.5, number=0, reports=((1, 0.5),))
    other = {"a": 0.25, "b": 0.5, "c": 1}
    search = Suggestions(
        SPACE, 3, BUDGET, [done, Trial(trial_name(other), other, "running", number=1)], {0: 0.5}
    )
    assert search.left == BUDGET - 1
    assert search.suggest("x") == {"trial": {"number": 1, "settings": other}}
    search.on_trial_complete("x", {"score": 0.25})
    fresh = carried_on([])
    third = search.suggest("y")
    assert third is not None
    assert third["trial"]["number"] == 2
    # No setting is drawn a second time
    assert third["trial"]["settings"] not in [trial.settings for trial in fresh[:2]]


def test_recorded_settings_outside_of_the_ranges_are_refused() -> None:
    pytest.importorskip("optuna")
    wrong = {"a": 99.0, "b": 0.25, "c": 2}
    with pytest.raises(UsageError, match="trial 0 of the search has settings outside of its ranges"):
        Suggestions(
            SPACE, 3, BUDGET, [Trial("x", wrong, "finished", number=0, reports=((1, 0.5),))], {0: 0.5}
        )


def test_settings_are_found_in_their_folders_whatever_the_order_of_their_names(tmp_path: Path) -> None:
    """A JSON file has its keys in alphabetical order, the folder of a trial the order of the axes."""
    settings = {"mu": 0.5, "local.lr": 0.25}
    request = Request(RunConfig(data=Data(validation=0.2)), ("fedprox",), grid={}, search="optuna")
    trial = Trial(trial_name(settings), settings, "running", number=0)
    SweepFolder(tmp_path / "a", request, resume=False).note("fedprox", {"trials": [trial.as_dict()]})
    resumed = SweepFolder(tmp_path / "a", request, resume=True)
    (found,) = known_trials(resumed, "fedprox", None, ["mu", "local.lr"])
    assert resumed.trial("fedprox", found.settings).name == "mu=0.5,local.lr=0.25"
    for axes in (["local.lr", "mu"], ["mu"], ["mu", "local.lr", "more"]):
        with pytest.raises(RunFolderError, match="trials, number 0: this is not a setting of this search"):
            known_trials(resumed, "fedprox", None, axes)


def test_a_pruned_trial_has_the_rounds_that_it_reported_also_where_its_process_was_ended_before_it_wrote_their_rows(  # noqa: E501
    tmp_path: Path,
) -> None:
    request = Request(RunConfig(data=Data(validation=0.2)), ("fedprox",), scheduler="asha")
    known = Trial("mu=0.5", {"mu": 0.5}, "pruned", number=4, reports=((1, 0.25), (3, 0.5)))
    (tmp_path / "metrics").mkdir()
    (tmp_path / "run.json").write_text(
        json.dumps(FEWEST | {"state": "stopped", "rounds_done": 0, "segments": []})
    )
    found = read_trial(request, tmp_path, known.settings, known)
    assert (found.state, found.rounds, found.reports) == ("pruned", 3, known.reports)
    assert reported(request, tmp_path, found) == {1: 0.25, 3: 0.5}

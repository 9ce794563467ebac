"""What a search learns from: reports at ASHA's rungs, and the trials before from which Optuna goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from raffed import Data, RunConfig
from raffed.errors import RunFolderError, UsageError
from raffed.search.folder import SweepFolder
from raffed.search.ledger import Halving, at_rungs, first_rung, known_trials, optuna_search
from raffed.search.request import Request
from raffed.search.space import Axes
from raffed.search.trials import Trial, read_trial, trial_name
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


def test_asha_names_the_trials_that_it_ended_and_never_ends_one_in_its_last_round() -> None:
    scheduler = Halving(ROUNDS)
    made = [run(scheduler, number) for number in range(12)]
    assert len({len(reports) for reports in made}) > 2  # some end early, at different rungs
    assert {f"t{number}" for number, reports in enumerate(made) if len(reports) < ROUNDS} == scheduler.ended


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


AXES: Axes = {"a": [0.001, 1.0], "b": [0.0, 1.0], "c": [1, 2]}


def objective(settings: dict[str, Any]) -> float:
    return -((math.log10(settings["a"]) + 2) ** 2) - (settings["b"] - 0.3) ** 2 - 0.1 * settings["c"]


def carried_on(before: list[Trial], budget: int) -> list[Trial]:
    """The trials of a search, one at a time, of which some are there already."""
    trials = [trial for trial in before if trial.ended]
    search = optuna_search(AXES, 3, before)
    while len(trials) < budget:
        name = str(len(trials))
        config = search.suggest(name)
        assert config is not None
        value = objective(config["trial"])
        search.on_trial_complete(name, {"score": value})
        settings = config["trial"]
        trials.append(Trial(trial_name(settings), settings, "finished", score=value, number=len(trials)))
    return trials


def test_optuna_goes_on_from_the_trials_before_and_begins_with_those_that_were_interrupted() -> None:
    pytest.importorskip("optuna")
    whole = carried_on([], 16)  # the first ten are drawn at random, the others from a model of the scores
    assert carried_on([], 16) == whole
    for cut in (1, 5, 13):
        interrupted = [replace(trial, state="running", score=math.nan) for trial in whole[cut : cut + 2]]
        resumed = carried_on([*whole[:cut], *interrupted], 20)
        assert [trial.settings for trial in resumed[: cut + 2]] == [
            trial.settings for trial in whole[: cut + 2]
        ]
        assert len({trial.name for trial in resumed}) == 20
    near = [objective(trial.settings) for trial in carried_on(whole, 30)[16:]]
    assert sum(near) / len(near) > sum(trial.score for trial in whole[:10]) / 10  # it learned from them


def test_a_trial_that_diverged_or_was_pruned_is_part_of_what_optuna_knows() -> None:
    pytest.importorskip("optuna")
    first, second, third = carried_on([], 3)
    diverged = replace(first, state="failed", error="diverged; set clip_norm", score=math.nan)
    pruned = replace(second, state="pruned", score=math.nan, reports=((1, 0.5), (3, -1.0)))
    assert diverged.ended
    assert len(carried_on([diverged, pruned, third], 5)) == 5


def test_recorded_settings_outside_of_the_ranges_are_refused() -> None:
    pytest.importorskip("optuna")
    wrong = {"a": 99.0, "b": 0.25, "c": 2}
    with pytest.raises(UsageError, match="a trial of the search has settings outside of its ranges"):
        optuna_search(AXES, 3, [Trial("x", wrong, "finished", score=0.5)])


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
    found = read_trial(request, tmp_path, known)
    assert (found.state, found.rounds, found.reports) == ("pruned", 3, known.reports)

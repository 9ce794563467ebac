"""A sweep as plain data: budgets are equal, choices come from validation, a request survives its file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raffed.tune_spaces import has_space

import raffed
from raffed import Data, Federation, RunConfig
from raffed.api.tuning import seconds_of
from raffed.data.partition_file import Partition
from raffed.errors import RunFolderError, UsageError
from raffed.methods import METHODS
from raffed.results.sweep_file import read_sweep
from raffed.runs.run import check_space
from raffed.search.folder import SweepFolder, Trial, choose, cost, score, trial_name
from raffed.search.request import Request, within_budget
from raffed.search.space import budget_of, check, check_parts, space_of

BASE = RunConfig(data=Data(validation=0.2), federation=Federation(rounds=2))


def asked(*methods: str, **changes: Any) -> Request:
    return Request(**{"base": BASE, "methods": methods, **changes})


def test_without_a_number_every_method_gets_the_largest_grid_s_budget() -> None:
    """FedAvg 5 rates, FedRS 3 points, FedMR 9."""
    assert budget_of(asked("fedavg", "fedrs", "fedmr")) == 9
    assert budget_of(asked("fedavg", "fedrs")) == 5
    assert budget_of(asked("fedavg", "fedrs", fill="none")) == 3
    assert budget_of(asked("fedavg", "fedmr", trials=4)) == 4


def test_a_budget_takes_points_without_repetition_in_the_grid_s_order_and_the_seed_decides_which() -> None:
    points = [{"a": i} for i in range(27)]
    kept = within_budget(points, 9, seed=0)
    assert len(kept) == 9
    assert kept == sorted(kept, key=lambda one: one["a"])
    assert kept == within_budget(points, 9, seed=0) != within_budget(points, 9, seed=1)
    assert within_budget(points, 30, seed=0) == points


def test_what_set_fixes_is_not_searched_and_grid_replaces_or_adds_an_axis() -> None:
    grid = {"mu1": [1.0], "local.lr": [0.1, 0.01]}
    request = asked("fedmr", "fedavg", args={"fedmr": {"mu2": 0.5}}, grid=grid)
    assert space_of(request, "fedmr") == grid
    assert space_of(request, "fedavg") == {"local.lr": [0.1, 0.01]}
    made = request.config("fedmr", {"mu1": 1.0, "local.lr": 0.01})
    assert (made.args, made.local.lr, made.method) == ({"mu2": 0.5, "mu1": 1.0}, 0.01, "fedmr")
    of_one = asked("map", "fedphp", grid={"map.mu": [0.9]})  # both take mu
    assert space_of(of_one, "map")["mu"] == [0.9]
    assert "mu" not in space_of(of_one, "fedphp")


def test_a_method_without_a_space_is_searched_over_the_axes_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """`raffed tune` asks first, without Ray, and gets the same answer."""
    monkeypatch.setitem(METHODS, "mine", METHODS["fedrs"])
    request = asked("mine", grid={"alpha": [0.1, 0.2], "local.lr": [0.1]})
    assert space_of(request, "mine") == {"alpha": [0.1, 0.2], "local.lr": [0.1]}
    check(request)
    check_space("mine", ["mine.alpha", "local.lr"])
    for grid in ([], ["local.lr"], ["fedrs.alpha"]):
        with pytest.raises(UsageError, match="mine has no search space: give --grid"):
            check_space("mine", grid)
    with pytest.raises(UsageError, match="mine has no search space: give --grid"):
        space_of(asked("mine", grid={"local.lr": [0.1]}), "mine")
    assert all(has_space(method) for method in METHODS if method != "mine")


def test_an_axis_without_values_or_with_something_else_is_refused_before_anything_starts() -> None:
    """Such a search would have no trial and so never end."""
    for among, said in (([], "without a value"), (0.1, "must be a list of values")):
        with pytest.raises(UsageError, match=said):
            raffed.tune("fedprox", out="nowhere", grid={"mu": among}, progress=False)  # type: ignore[dict-item]
    assert not Path("nowhere").exists()


RULE = "val.accuracy no better for 2 rounds"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": {"mu3": [1.0]}}, "--grid mu3: none of fedmr has"),
        ({"grid": {"mu1": [-1.0]}}, r"mu1 = -1\.0 is outside"),
        # The same run twice, in two folders
        ({"grid": {"mu1": [1, 1.0, 2.0], "mu2": [0.5]}}, r"2 settings of the grid are equal: mu1=1,mu2=0\.5"),
        # The final runs have no validation part, without which `raffed run` refuses such a rule
        ({"base": BASE.changed({"federation.stop_when": RULE})}, "the final runs train on all training data"),
    ],
)
def test_a_search_that_could_not_end_well_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(asked("fedmr", **changes))


def test_the_final_runs_have_fresh_seeds_all_training_data_and_the_chosen_setting() -> None:
    request = asked("fedmr", base=replace(BASE, seed=7), seeds=3)
    assert request.final_seeds() == [8, 9, 10]
    final = request.config("fedmr", {"mu1": 0.1}, seed=8)
    held = [request.config("fedfomo", {"judge": one}, seed=8).data.validation for one in ("val", "train")]
    assert held == [request.base.data.validation, 0.0]  # its clients judge by what is held out
    assert (final.seed, final.data.validation, final.args) == (8, 0.0, {"mu1": 0.1})
    assert request.config("fedmr", {"mu1": 0.1}).data.validation == 0.2


def test_the_validation_protocol_reads_no_test_score_and_the_papers_reads_no_other() -> None:
    validation = {("global", "val"): 0.5, ("personal", "val"): 0.7}
    values = {**validation, ("global", "test"): 0.1, ("personal", "local_test"): 0.3}
    found = [score(asked("map", select=select), values) for select in ("global", "personal", "mean")]
    assert found == pytest.approx([0.5, 0.7, 0.6])
    paper = Request(replace(BASE, data=Data()), ("map",), protocol="paper", select="mean")
    assert score(paper, values) == pytest.approx(0.2)
    assert paper.final_seeds() == []
    assert math.isnan(score(asked("map", select="mean"), {("global", "val"): 0.5}))


def test_a_request_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(UsageError, match=r"data\.validation above 0"):
        Request(RunConfig(), ("map",))
    with pytest.raises(UsageError, match=r"leave data\.validation at 0"):
        asked("map", protocol="paper")
    for name in ("seeds", "trials"):
        with pytest.raises(UsageError, match=f"{name} = 0"):
            asked("fedmr", **{name: 0})


def test_a_method_without_a_global_model_is_not_chosen_by_one() -> None:
    for select in ("global", "mean"):
        with pytest.raises(UsageError, match="fedrep has no global model: give --select personal"):
            check(asked("fedavg", "fedrep", select=select))
    check(asked("fedavg", "fedrep", select="personal"))


def test_personal_models_need_local_test_parts_in_the_papers_protocol() -> None:
    asked_so = asked("map", select="personal", protocol="paper", base=replace(BASE, data=Data()))
    without, own = (Partition((np.arange(4),), (np.arange(4, 4 + n),), 2) for n in (0, 2))
    with pytest.raises(UsageError, match="no client has a local test part"):
        check_parts(asked_so, without)
    check_parts(asked_so, own)


def test_with_another_choice_the_final_runs_of_the_last_one_are_dropped(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "s", asked("fedmr"), resume=False)
    small, large = (Trial(f"mu1={mu1}", {"mu1": mu1}, "finished", score=0.5).as_dict() for mu1 in (0.1, 1.0))
    final = [{"seed": 1, "folder": "fedmr/final/seed-1", "state": "finished"}]
    for changes in ({"chosen": small}, {"final": final}, {"chosen": small, "budget": 2}):
        folder.note("fedmr", changes)
    assert read_sweep(tmp_path / "s")["methods"]["fedmr"]["final"] == final
    folder.note("fedmr", {"chosen": large})
    assert "final" not in read_sweep(tmp_path / "s")["methods"]["fedmr"]
    assert folder.chosen("fedmr") == {"mu1": 1.0}


def test_the_best_finished_trial_is_chosen_of_equals_the_first_and_failures_never() -> None:
    finished = [Trial(name, {}, "finished", score=0.8) for name in "bc"]
    trials = [Trial("a", {}, "failed"), *finished]
    assert choose(trials) == trials[1]
    assert choose(trials[:1]) is None
    others = [Trial("d", {}, "never run"), Trial("e", {}, "running", rounds=4, seconds=2.5)]
    assert cost([*trials, *others]) == {"trials": 4, "rounds": 4, "seconds": 2.5}


def test_a_request_survives_its_file_and_another_one_is_refused_there(tmp_path: Path) -> None:
    request = asked("fedmr", grid={"mu1": [0.1, 1.0]}, trials=3)
    SweepFolder(tmp_path / "s", request, resume=False)
    assert Request.from_dict(read_sweep(tmp_path / "s")["request"]).as_dict() == request.as_dict()
    SweepFolder(tmp_path / "s", request, resume=True)
    with pytest.raises(RunFolderError, match="holds another sweep"):
        SweepFolder(tmp_path / "s", asked("fedmr"), resume=True)
    with pytest.raises(RunFolderError, match="--resume continues it"):
        SweepFolder(tmp_path / "s", request, resume=False)
    with pytest.raises(RunFolderError, match=r"no sweep\.json"):
        SweepFolder(tmp_path / "t", request, resume=True)


def test_names_of_trials_are_names_of_folders() -> None:
    assert trial_name({"mu1": 0.01, "mode": "counts"}) == "mu1=0.01,mode=counts"
    assert trial_name({}) == "defaults"
    assert "/" not in trial_name({"path": "../../etc"})


def test_times_are_read_with_their_unit_and_refused_without_one_or_a_length() -> None:
    times = ("90s", "30m", "1.5h", "2 h", "1d")
    assert [seconds_of(text) for text in times] == [90, 1800, 5400, 7200, 86400]
    for text in ("2", "-1h", "0s"):
        with pytest.raises(UsageError, match="must be a time such as"):
            seconds_of(text)

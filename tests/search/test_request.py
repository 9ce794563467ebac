"""A sweep as plain data: what is searched, as many settings for every method, choices from validation, a
request that survives its file. Without Ray.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raffed.tune_spaces import has_space

import raffed
from raffed import Data, Federation, RunConfig
from raffed.api.tuning import seconds_of
from raffed.cli.tuning import axes
from raffed.config.search_axis import NumberRange, number_range
from raffed.core.method import Method
from raffed.data.partition_file import Partition
from raffed.errors import RunFolderError, UsageError
from raffed.methods import METHODS
from raffed.methods.own import method
from raffed.results.sweep_file import read_sweep
from raffed.runs.run import check_space
from raffed.search.folder import SweepFolder, Trial, choose, cost, score, trial_name
from raffed.search.request import Request, within_budget
from raffed.search.space import (
    axes_of,
    budget_of,
    check,
    check_parts,
    check_search,
    described,
    proposed,
    space_of,
)
from tests.cli.conftest import Cli, cli

BASE = RunConfig(data=Data(validation=0.2), federation=Federation(rounds=2))


def asked(*methods: str, **changes: Any) -> Request:
    return Request(**{"base": BASE, "methods": methods, **changes})


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
        # Means over seeds can be compared only in a whole grid
        ({"grid": {"seed": [0, 1]}, "search": "random"}, "needs --search grid"),
        ({"grid": {"seed": [0, 1]}, "scheduler": "asha"}, "needs --scheduler fifo"),
        # The methods would have other numbers of seeds, and final seeds that trials have seen
        ({"grid": {"fedmr.seed": [0, 1]}}, r"--grid fedmr\.seed=…: .*write seed=…"),
        # It cannot be both fixed and searched
        *(
            (
                {"args": {"fedmr": {"mu1": 0.1}}, "grid": {axis: [0.5, 1.0]}},
                "--set fixes mu1 of fedmr; leave one",
            )
            for axis in ("mu1", "fedmr.mu1")
        ),
        ({"base": RunConfig()}, r"data\.validation above 0"),
        ({"protocol": "paper"}, r"leave data\.validation at 0"),
        *(({name: 0}, f"{name} = 0") for name in ("seeds", "trials")),
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


__all__ = ["cli"]


def read(text: str) -> NumberRange:
    found = number_range(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-4..1:log", [0.0001, 0.001, 0.01, 0.1, 1.0]),  # steps of ten
        ("0..1.0", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("8..64:log:4", [8, 16, 32, 64]),
        ("1..3", [1, 2, 3]),  # 1, 1.5, 2, 2.5 and 3 are three whole numbers
        ("0.9999..0.99999:4", [0.9999, 0.99993, 0.99996, 0.99999]),  # in four digits, only two values
    ],
)
def test_a_range_has_evenly_spread_values_both_ends_among_them(text: str, values: list[float]) -> None:
    found = read(text).values()
    assert found == values
    assert [type(one) for one in found] == [type(one) for one in values]


def test_an_impossible_range_is_refused_and_other_texts_are_none() -> None:
    for text in ("0..1:log", "1..1", "2..1", "0.1..1:1", "0.1..1:5000"):
        with pytest.raises(UsageError, match="must be"):
            number_range(text)
    assert [number_range(text) for text in ("kd", "1..2..3", "a..b", "1", "..")] == [None] * 5


def test_a_random_search_draws_within_the_range_by_the_seed_and_nothing_twice() -> None:
    request = asked("fedprox", grid=axes(["mu=1e-4..1:log"]), search="random", trials=40)
    found = [one["mu"] for one in proposed(request, "fedprox")]
    assert found == [one["mu"] for one in proposed(request, "fedprox")]
    assert len(found) == len(set(found)) == 40
    assert all(0.0001 <= mu <= 1 for mu in found)
    assert 10 <= sum(math.log10(mu) < -2 for mu in found) <= 30, "half of the range's logarithm"
    assert described(axes_of(request, "fedprox"), "random") == {"mu": ["0.0001..1:log"]}
    whole = proposed(asked("fedprox", grid=axes(["local.batch_size=8..64:log:4", "mu=0..1:3"])), "fedprox")
    assert {one["mu"] for one in whole} == {0.0, 0.5, 1.0}, "μ need not be a whole number"
    assert {one["local.batch_size"] for one in whole} == {8, 16, 32, 64}
    few = asked("fedprox", grid={"mu": [0.1, 1.0]}, search="random", trials=40, fill="none")
    assert sorted(one["mu"] for one in proposed(few, "fedprox")) == [0.1, 1.0]


def test_a_search_that_draws_is_not_refused_for_the_size_of_a_grid_that_it_does_not_try() -> None:
    """Eight ranges have 5⁸ = 390,625 points, of which 20 settings are tried. What they are is checked."""
    whole = ("batch_size=8..64", "epochs=1..5", "clip_norm=1..10", "warmup_rounds=0..4")
    real = ("lr=1e-3..1:log", "momentum=0..0.9", "weight_decay=1e-6..1e-2:log")
    grid = axes([*(f"local.{text}" for text in (*whole, *real)), "mu=1e-4..1:log"])
    for search in ("random", "optuna"):
        check(asked("fedprox", grid=grid, search=search, trials=20))
        with pytest.raises(UsageError, match="mu = -"):
            check(asked("fedprox", grid={**grid, "mu": ["-2..-1"]}, search=search, trials=20))
        with pytest.raises(UsageError, match="has 390,625 settings"):  # as many trials, if nobody says less
            check(asked("fedprox", grid=grid, search=search))


def test_an_argument_that_is_fixed_for_one_method_is_searched_for_another() -> None:
    request = asked("fedprox", "moon", args={"fedprox": {"mu": 0.1}}, grid={"moon.mu": [1, 2]}, fill="none")
    check(request)
    assert axes_of(request, "moon")["mu"] == [1, 2]
    assert all(request.config("fedprox", one).args == {"mu": 0.1} for one in proposed(request, "fedprox"))


def test_every_method_has_as_many_trials_and_the_rate_makes_up_for_a_smaller_grid() -> None:
    """FedMR 9, FedRS 3 values of α by 3 rates, FedAvg 9 rates around 0.03."""
    request = asked("fedavg", "fedrs", "fedmr")
    found = {method: proposed(request, method) for method in request.methods}
    assert [len(one) for one in found.values()] == [9, 9, 9]
    rates = [one["local.lr"] for one in found["fedavg"]]
    assert (rates[0], rates[4], rates[8]) == (0.003, 0.03, 0.3)
    assert rates[4] == BASE.local.lr
    assert {one["local.lr"] for one in found["fedrs"]} == {0.003, 0.03, 0.3}
    assert all("local.lr" not in one for one in found["fedmr"])
    stepping = proposed(asked("perfedavg", trials=30), "perfedavg")
    assert all("local.lr" not in one for one in stepping), "it steps at a rate of its own, which is searched"


def test_a_method_without_a_grid_tunes_its_rate_and_fill_none_leaves_it() -> None:
    """Without a number of trials the budget is the largest grid's: FedAvg 5 rates, FedRS 3 points."""
    assert len(proposed(asked("fedavg"), "fedavg")) == budget_of(asked("fedavg", "fedrs")) == 5
    assert budget_of(asked("fedavg", "fedrs", fill="none")) == 3
    assert budget_of(asked("fedavg", "fedmr", trials=4)) == 4
    seeds = {"seed": [0, 1, 2]}  # each setting has all of them
    assert len(proposed(asked("fedavg", grid=seeds), "fedavg")) == 5 * 3
    assert len(proposed(asked("fedavg", grid=seeds, trials=2), "fedavg")) == 2 * 3
    assert proposed(asked("fedavg", trials=1), "fedavg") == [{}]
    assert proposed(asked("fedavg", fill="none"), "fedavg") == [{}]
    assert list(axes_of(asked("fedavg", search="optuna", trials=7), "fedavg")) == ["local.lr"]


@pytest.mark.parametrize(("method", "search"), [("perfedavg", "grid"), ("pfedme", "random")])
def test_a_rate_that_set_fixes_is_not_searched_to_make_up_the_budget(method: str, search: str) -> None:
    request = asked(method, args={method: {"outer_lr": 0.0123}}, trials=20, search=search)
    rates = {request.config(method, one).args["outer_lr"] for one in proposed(request, method)}
    assert rates == {0.0123}


@pytest.mark.parametrize(("lr", "trials"), [(0.01, 5), (0.0125, 62)])
def test_any_number_of_rates_reach_from_a_tenth_to_ten_times(lr: float, trials: int) -> None:
    request = asked("fedavg", base=BASE.changed({"local.lr": lr}), trials=trials)
    rates = [one["local.lr"] for one in proposed(request, "fedavg")]
    assert sorted(set(rates)) == rates
    assert len(rates) == trials
    assert rates[0] == pytest.approx(lr / 10, rel=0.05)
    assert lr in rates
    check(request)


def test_an_axis_that_is_given_twice_is_refused_and_that_of_one_method_counts_for_it() -> None:
    with pytest.raises(UsageError, match=r"--grid mu is given twice; .*mu=0\.01,0\.1"):
        axes(["mu=0.1", "mu=0.2"])
    for texts in (["mu=1,2", "fedprox.mu=3"], ["fedprox.mu=3", "mu=1,2"]):
        request = asked("fedprox", "moon", grid=axes(texts))
        assert axes_of(request, "fedprox")["mu"] == [3]
        assert axes_of(request, "moon")["mu"] == [1, 2]


def own(**space: Any) -> str:
    """The reference of a method of a user's own with this space."""

    @method(space={name.replace("__", "."): values for name, values in space.items()})
    def searched(mu: float = 0.1) -> Method:
        return Method("Searched")

    globals()["searched"] = searched
    searched.__qualname__ = "searched"
    return f"{__name__}:searched"


def test_a_space_of_one_s_own_may_search_fields_of_the_configuration_that_there_are() -> None:
    request = asked(name := own(mu=[0.1], local__lr=[0.01, 0.1]))
    check(request)
    settings = proposed(request, name)
    assert settings == [{"mu": 0.1, "local.lr": 0.01}, {"mu": 0.1, "local.lr": 0.1}]
    assert [request.config(name, one).local.lr for one in settings] == [0.01, 0.1]
    for field, said in (
        ("local__lrr", r"\[local\] 'lrr'; nearest: lr"),
        ("runtime__address", "known: clock"),
    ):
        with pytest.raises(UsageError, match=said):
            check(asked(own(mu=[0.1], **{field: [0.1]})))


def test_every_setting_runs_with_every_seed_and_the_best_mean_is_chosen() -> None:
    """One lucky seed does not win: 0.9 and 0.1 are 0.5 on average, which is below 0.6."""
    request = asked("fedprox", grid={"mu": [0.1, 1.0, 2.0], "seed": [3, 4]})
    every = proposed(request, "fedprox")
    pairs = [(mu, seed) for mu in (0.1, 1.0, 2.0) for seed in (3, 4)]
    assert [(one["mu"], one["seed"]) for one in every] == pairs
    assert request.config("fedprox", every[1]).seed == 4
    assert request.final_seeds() == [5, 6, 7], "seeds that no trial saw"
    kept = proposed(asked("fedprox", grid=request.grid, trials=2), "fedprox")
    assert [one["seed"] for one in kept] == [3, 4, 3, 4], "a smaller budget leaves out settings, not seeds"
    scores = (0.9, 0.1, 0.6, 0.6, 0.99, math.nan)
    trials = [
        Trial(trial_name(one), one, "finished", score=score) for one, score in zip(every, scores, strict=True)
    ]
    chosen = choose(trials)
    assert chosen is not None
    assert (chosen.settings, chosen.name, chosen.score) == ({"mu": 1.0}, "mu=1.0", pytest.approx(0.6))


def test_without_optuna_nothing_starts(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="needs Optuna"):
        check_search(asked("fedavg", search="optuna"))
    ended = cli("tune --method fedavg --search optuna", "--out", tmp_path / "s")
    assert ended.code == 2
    assert ended.err == "raffed: --search optuna needs Optuna: pip install 'raffed[sweep]'\n"
    assert list(tmp_path.iterdir()) == []

"""What is searched: ranges, seeds and networks, and as many settings for every method. Without Ray."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from raffed import Data, Federation, RunConfig
from raffed.cli.tuning import axes
from raffed.config.search_axis import NumberRange, number_range
from raffed.core.method import Method
from raffed.errors import UsageError
from raffed.methods.own import method
from raffed.search.folder import Trial, choose, trial_name
from raffed.search.request import Request
from raffed.search.space import axes_of, budget_of, check, check_search, described, proposed
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]
BASE = RunConfig(data=Data(validation=0.2), federation=Federation(rounds=2))


def asked(*methods: str, **changes: Any) -> Request:
    return Request(**{"base": BASE, "methods": methods, **changes})


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
    assert len(proposed(asked("fedavg"), "fedavg")) == budget_of(asked("fedavg")) == 5
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
    kept = proposed(asked("fedprox", grid=request.grid, trials=4), "fedprox")
    assert [one["seed"] for one in kept] == [3, 4, 3, 4], "a smaller budget leaves out settings, not seeds"
    scores = (0.9, 0.1, 0.6, 0.6, 0.99, math.nan)
    trials = [
        Trial(trial_name(one), one, "finished", score=score) for one, score in zip(every, scores, strict=True)
    ]
    chosen = choose(trials)
    assert chosen is not None
    assert (chosen.settings, chosen.name, chosen.score) == ({"mu": 1.0}, "mu=1.0", pytest.approx(0.6))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"search": "random"}, "needs --search grid"), ({"scheduler": "asha"}, "needs --scheduler fifo")],
)
def test_seeds_are_an_axis_only_where_their_means_can_be_compared(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked("fedprox", **{"grid": {"seed": [0, 1]}, **changes})


def test_without_optuna_nothing_starts(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="needs Optuna"):
        check_search(asked("fedavg", search="optuna"))
    ended = cli("tune --method fedavg --search optuna", "--out", tmp_path / "s")
    assert ended.code == 2
    assert ended.err == "raffed: --search optuna needs Optuna: pip install 'raffed[sweep]'\n"
    assert list(tmp_path.iterdir()) == []

"""What is searched: ranges, seeds and networks, and as many settings for every method. Without Ray."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Data, Federation, RunConfig
from raffed.cli.tuning import axes
from raffed.config.search_axis import number_range
from raffed.core.method import Method
from raffed.errors import UsageError
from raffed.methods.own import method
from raffed.search.request import Request
from raffed.search.space import axes_of, budget_of, check, check_search, described, proposed
from raffed.search.trials import Trial, choose, trial_name
from tests.cli.conftest import Cli, cli
from tests.params import one_in

__all__ = ["cli"]
BASE = RunConfig(data=Data(validation=0.2), federation=Federation(rounds=2))


def asked(*methods: str, **changes: Any) -> Request:
    return Request(**{"base": BASE, "methods": methods, **changes})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-4..1:log", [0.0001, 0.001, 0.01, 0.1, 1.0]),  # steps of ten
        ("0..1.0", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("0.1..0.9:3", [0.1, 0.5, 0.9]),
        ("8..64:log:4", [8, 16, 32, 64]),
        ("1..3", [1, 2, 3]),  # 1, 1.5, 2, 2.5 and 3 are three whole numbers
        ("0.9..0.99999:3", [0.9, 0.95, 0.99999]),  # in four digits the last one would be 1
        ("0.12345..1:log:3", [0.12345, 0.3514, 1.0]),
        ("0.9999..0.99999:4", [0.9999, 0.99993, 0.99996, 0.99999]),  # in four digits, only two values
    ],
)
def test_a_range_has_evenly_spread_values_both_ends_among_them(text: str, values: list[float]) -> None:
    found = number_range(text)
    assert found is not None
    assert found.values() == values
    assert [type(one) for one in found.values()] == [type(one) for one in values]


def test_draws_stay_within_the_range_and_whole_numbers_are_equally_likely() -> None:
    source, near, few = random.Random(0), number_range("0.99..0.99999"), number_range("1..3")
    assert near is not None
    assert few is not None
    assert all(0.99 <= near.draw(source) <= 0.99999 for _ in range(1000))
    drawn = Counter(few.draw(source) for _ in range(3000))
    assert set(drawn) == {1, 2, 3}
    assert all(900 < times < 1100 for times in drawn.values()), "4 standard deviations"


def test_whole_numbers_of_a_logarithmic_range_are_drawn_by_their_share_of_its_logarithm() -> None:
    source, found = random.Random(0), number_range("1..4:log")
    assert found is not None
    drawn = Counter(found.draw(source) for _ in range(9000))
    for number, times in drawn.items():
        share = math.log((number + 0.5) / (number - 0.5)) / math.log(4.5 / 0.5)
        assert times / 9000 == pytest.approx(share, abs=0.02)
    assert set(drawn) == {1, 2, 3, 4}


@pytest.mark.parametrize("text", ["0..1:log", "1..1", "2..1", "0.1..1:1", "0.1..1:5000"])
def test_an_impossible_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be"):
        number_range(text)


@pytest.mark.parametrize("text", ["kd", "1..2..3", "a..b", "1", "..", "counts"])
def test_other_texts_are_not_ranges(text: str) -> None:
    assert number_range(text) is None


def test_a_grid_takes_the_points_of_a_range_and_a_range_of_a_fraction_is_not_whole() -> None:
    request = asked("fedprox", grid=axes(["mu=1e-4..1:log:3"]))
    assert [one["mu"] for one in proposed(request, "fedprox")] == [0.0001, 0.01, 1.0]
    request = asked("fedprox", grid=axes(["mu=0..1:3"]))
    assert [one["mu"] for one in proposed(request, "fedprox")] == [0.0, 0.5, 1.0]
    request = asked("fedprox", grid=axes(["local.batch_size=8..64:log:4"]), args={"fedprox": {"mu": 0.1}})
    assert [one["local.batch_size"] for one in proposed(request, "fedprox")] == [8, 16, 32, 64]


def test_a_random_search_draws_within_the_range_by_the_seed_and_nothing_twice() -> None:
    request = asked("fedprox", grid=axes(["mu=1e-4..1:log"]), search="random", trials=40)
    found = [one["mu"] for one in proposed(request, "fedprox")]
    assert found == [one["mu"] for one in proposed(request, "fedprox")]
    assert len(found) == len(set(found)) == 40
    assert all(0.0001 <= mu <= 1 for mu in found)
    below = sum(math.log10(mu) < -2 for mu in found)
    assert 10 <= below <= 30, "half of the range's logarithm"
    assert described(axes_of(request, "fedprox"), "random") == {"mu": ["0.0001..1:log"]}
    few = asked("fedprox", grid={"mu": [0.1, 1.0]}, search="random", trials=40, fill="none")
    assert sorted(one["mu"] for one in proposed(few, "fedprox")) == [0.1, 1.0]


def test_every_method_has_as_many_trials_and_the_rate_makes_up_for_a_smaller_grid() -> None:
    """FedMR 9, FedRS 3 values of α by 3 rates, FedAvg 9 rates around 0.03."""
    request = asked("fedavg", "fedrs", "fedmr")
    found = {method: proposed(request, method) for method in request.methods}
    assert [len(one) for one in found.values()] == [9, 9, 9]
    rates = [one["local.lr"] for one in found["fedavg"]]
    assert (rates[0], rates[4], rates[8]) == (0.003, 0.03, 0.3) == (rates[0], BASE.local.lr, rates[8])
    assert {one["local.lr"] for one in found["fedrs"]} == {0.003, 0.03, 0.3}
    assert all("local.lr" not in one for one in found["fedmr"])
    stepping = proposed(asked("perfedavg", trials=30), "perfedavg")
    assert all("local.lr" not in one for one in stepping), "it steps at a rate of its own, which is searched"


def test_a_method_without_a_grid_tunes_its_rate_and_fill_none_leaves_it() -> None:
    assert len(proposed(asked("fedavg"), "fedavg")) == budget_of(asked("fedavg")) == 5
    assert proposed(asked("fedavg", trials=1), "fedavg") == [{}]
    assert proposed(asked("fedavg", fill="none"), "fedavg") == [{}]
    assert list(axes_of(asked("fedavg", search="optuna", trials=7), "fedavg")) == ["local.lr"]


@pytest.mark.parametrize("method", ["perfedavg", "pfedme"])
@pytest.mark.parametrize("search", ["grid", "random"])
def test_a_rate_that_set_fixes_is_not_searched_to_make_up_the_budget(method: str, search: str) -> None:
    request = asked(method, args={method: {"outer_lr": 0.0123}}, trials=20, search=search)
    rates = {request.config(method, one).args["outer_lr"] for one in proposed(request, method)}
    assert rates == {0.0123}


def test_a_sweep_of_before_goes_on_with_the_trials_that_it_had() -> None:
    """Its sweep.json has no `fill`."""
    before = asked("fedavg", fill="none").as_dict()
    del before["fill"]
    assert Request.from_dict(before) == asked("fedavg", fill="none")
    assert Request.from_dict(asked("fedavg").as_dict()).fill == "rate"


@pytest.mark.parametrize("lr", one_in(3, [0.01, 0.0125, 0.03, 0.1, 1.0]))
@pytest.mark.parametrize("trials", one_in(2, [5, 61, 62, 100, 1000]))
def test_any_number_of_rates_are_different_and_reach_from_a_tenth_to_ten_times(
    lr: float, trials: int
) -> None:
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


def test_a_negative_number_of_trials_at_a_time_is_refused(tmp_path: Path, cli: Cli) -> None:
    with pytest.raises(UsageError, match="at_once = -1 is outside"):
        raffed.tune("fedavg", BASE, out=tmp_path / "s", at_once=-1)
    for more in ([], ["--plan"]):
        ended = cli("tune", "--method", "fedavg", "--at-once", "-1", *more, "--out", tmp_path / "s")
        assert ended.code == 2
        assert "greater than or equal to 0" in ended.err
    assert list(tmp_path.iterdir()) == []


def own(**space: Any) -> str:
    """The reference of a method of a user's own with this space."""

    @method(space={name.replace("__", "."): values for name, values in space.items()})
    def searched(mu: float = 0.1) -> Method:
        return Method("Searched")

    globals()["searched"] = searched
    searched.__qualname__ = "searched"
    return f"{__name__}:searched"


def test_a_space_of_one_s_own_may_search_fields_of_the_configuration() -> None:
    name = own(mu=[0.1], local__lr=[0.01, 0.1])
    request = asked(name)
    check(request)
    settings = proposed(request, name)
    assert settings == [{"mu": 0.1, "local.lr": 0.01}, {"mu": 0.1, "local.lr": 0.1}]
    assert [request.config(name, one).local.lr for one in settings] == [0.01, 0.1]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("local__lrr", r"\[local\] 'lrr'; nearest: lr"),
        ("lokal__lr", "section of the axis 'lokal.lr' 'lokal'; nearest: local"),
        ("runtime__address", "section of the axis 'runtime.address' 'runtime'; known: clock"),
    ],
)
def test_a_space_that_names_another_field_is_refused(field: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(asked(own(mu=[0.1], **{field: [0.1]})))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"mu": [0.1], "nu": [1]}, "argument of fedprox in its search space 'nu'; nearest: mu"),
        (["mu"], r"fedprox\.py: SPACE = \['mu'\]: it must map the names of arguments to values"),
        ({1: [0.1]}, r"fedprox\.py: SPACE = \{1: \[0\.1\]\}: it must map"),
        (None, r"fedprox\.py: SPACE = None: it must map"),
    ],
)
def test_a_file_of_tune_spaces_that_is_wrong_is_refused(
    space: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.tune_spaces.fedprox.SPACE", space)
    with pytest.raises(UsageError, match=said):
        check(asked("fedprox"))
    monkeypatch.delattr("raffed.tune_spaces.fedprox.SPACE")
    with pytest.raises(UsageError, match="SPACE = None"):
        check(asked("fedprox"))


def test_networks_are_an_axis_and_lists_keep_their_commas() -> None:
    grid = axes(["model.args.hidden=[8],[16,16]"])
    assert grid == {"model.args.hidden": [[8], [16, 16]]}
    request = asked("fedprox", grid=grid, args={"fedprox": {"mu": 0.1}})
    every = proposed(request, "fedprox")
    assert [request.config("fedprox", one).model.args for one in every] == [
        {"hidden": [8]},
        {"hidden": [16, 16]},
    ]
    check(request)


def test_every_setting_runs_with_every_seed_and_the_best_mean_is_chosen() -> None:
    """One lucky seed does not win: 0.9 and 0.1 are 0.5 on average, which is below 0.6."""
    request = asked("fedprox", grid={"mu": [0.1, 1.0, 2.0], "seed": [3, 4]})
    every = proposed(request, "fedprox")
    assert [(one["mu"], one["seed"]) for one in every] == [
        (mu, seed) for mu in (0.1, 1.0, 2.0) for seed in (3, 4)
    ]
    assert request.config("fedprox", every[1]).seed == 4
    assert request.final_seeds() == [5, 6, 7], "seeds that no trial saw"
    kept = proposed(asked("fedprox", grid=request.grid, trials=4), "fedprox")
    assert [one["seed"] for one in kept] == [3, 4, 3, 4], "a smaller budget leaves out settings, not seeds"
    scores = (0.9, 0.1, 0.6, 0.6, 0.99, math.nan)
    trials = [
        Trial(trial_name(one), one, "finished", 2, 1.0, score)
        for one, score in zip(every, scores, strict=True)
    ]
    chosen = choose(trials)
    assert chosen is not None
    assert (chosen.settings, chosen.name, chosen.score) == ({"mu": 1.0}, "mu=1.0", pytest.approx(0.6))


def test_of_settings_with_equal_means_over_seeds_the_first_is_chosen_in_any_order_of_scores() -> None:
    every = proposed(asked("fedprox", grid={"mu": [0.1, 1.0], "seed": [0, 1, 2]}), "fedprox")
    scores = (0.3, 0.2, 0.1, 0.1, 0.2, 0.3)  # added from the left, the second mean is larger
    trials = [Trial(trial_name(one), one, "finished", score=s) for one, s in zip(every, scores, strict=True)]
    chosen = choose(trials)
    assert chosen is not None
    assert chosen.settings == {"mu": 0.1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"search": "random"}, "needs --search grid, not random"),
        ({"scheduler": "asha"}, "needs --scheduler fifo, not asha"),
        ({"grid": {"seed": ["a"]}}, "--grid seed=a: it must be a whole number"),
    ],
)
def test_seeds_are_an_axis_only_where_their_means_can_be_compared(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked("fedprox", **{"grid": {"seed": [0, 1]}, **changes})


def test_without_optuna_a_search_with_it_starts_nothing_and_leaves_nothing(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="needs Optuna"):
        check_search(asked("fedavg", search="optuna"))
    ended = cli("tune", "--method", "fedavg", "--search", "optuna", "--out", tmp_path / "s")
    assert ended.code == 2
    assert ended.err == "raffed: --search optuna needs Optuna: pip install 'raffed[sweep]'\n"
    assert list(tmp_path.iterdir()) == []

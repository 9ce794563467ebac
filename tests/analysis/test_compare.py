"""Paired tests and ranks: values of tables and of small sums done by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.compare import (
    Ranking,
    comparison_table,
    critical_difference,
    established_best,
    paired,
    range_quantile,
    ranking,
    sign_changes,
)
from raffed.analysis.metrics.intervals import t_tail
from raffed.analysis.runs.comparable import classes, notices
from raffed.analysis.runs.groups import groups
from scipy import stats as reference

from tests.analysis.changed_run import change

WriteRun = Callable[..., Path]


@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 4.3, 40.0])
def test_the_tail_of_student_s_t_is_that_of_its_closed_forms(t: float) -> None:
    """One degree of freedom is Cauchy's distribution; two give t/√(2 + t²)."""
    assert t_tail(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
    assert t_tail(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t**2), abs=1e-12)


@pytest.mark.parametrize(("t", "freedom"), [(0.0, 3), (1.0, 1), (2.5, 4), (4.3, 2), (12.0, 9)])
def test_the_tail_of_student_s_t_is_scipy_s(t: float, freedom: int) -> None:
    assert t_tail(t, freedom) == pytest.approx(2 * reference.t.sf(t, freedom), abs=1e-12)


def test_a_paired_difference_counts_common_seeds_only() -> None:
    """Differences 1, 2, 3 points: mean 2, s = 1, t = 2√3 with 2 degrees of freedom."""
    found = paired({0: 0.51, 1: 0.52, 2: 0.53, 7: 0.9}, {0: 0.5, 1: 0.5, 2: 0.5, 8: 0.1})
    assert (found.seeds, found.mean) == (3, pytest.approx(2.0))
    assert found.p_t == pytest.approx(reference.ttest_rel([0.51, 0.52, 0.53], [0.5, 0.5, 0.5]).pvalue)
    assert found.p_signs == 0.25  # +++ and --- of 8
    assert math.isnan(paired({0: 0.5}, {0: 0.4}).p_t)


def test_sign_changes_count_how_many_are_as_far_from_nothing() -> None:
    """1, 1, -1: the sum is 1; of 8 changes all have |sum| 1 or 3, so every one is at least as far."""
    assert sign_changes([1.0, 1.0, -1.0]) == 1.0
    assert sign_changes([3.0, 1.0, 1.0, 2.0]) == 2 / 16
    assert math.isnan(sign_changes([1.0] * 15))


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=6))
def test_sign_changes_are_all_counted_and_ties_stay_ties(points: list[int]) -> None:
    """Accuracies over a test set of 2,000 samples: whole numbers give the exact count, 0.05 points do not."""
    sums = [abs(sum(map(int.__mul__, signs, points))) for signs in product((1, -1), repeat=len(points))]
    exact = sum(one >= abs(sum(points)) for one in sums) / len(sums)
    differences = [100 * ((1000 + one) / 2000 - 1000 / 2000) for one in points]
    assert sign_changes(differences) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_quantiles_are_those_of_demsar_s_table(methods: int, q: float) -> None:
    assert range_quantile(methods) / math.sqrt(2) == pytest.approx(q, abs=1e-3)


def test_the_critical_difference_of_demsar_s_example_is_1_25() -> None:
    """Four classifiers on 14 data sets: 2.569 √(4·5/(6·14)) = 1.25 (Demšar 2006, section 3.2.2)."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_cliques_are_the_longest_spans_within_the_difference() -> None:
    assert Ranking({"a": 1.0, "b": 1.8, "c": 2.6, "d": 5.0}, 1.0, 9).cliques() == [(1.0, 1.8), (1.8, 2.6)]
    assert Ranking({"a": 1.0, "b": 4.0, "c": 7.0}, 1.0, 9).cliques() == []


def test_ranks_are_means_over_tasks_and_ties_share(tmp_path: Path, write_run: WriteRun) -> None:
    scores = {"fedavg": (0.5, 0.5), "map": (0.7, 0.5), "fedmr": (0.6, 0.9)}
    for method, both in scores.items():
        for split, score in zip(("p10c2", "iid:10"), both, strict=True):
            write_run(f"{method}-{split[0]}", [score], method=method, split=split)
    found = ranking(load_runs([tmp_path]))
    assert found is not None
    assert found.ranks == {"fedavg": (3 + 2.5) / 2, "map": (1 + 2.5) / 2, "fedmr": (2 + 1) / 2}
    assert found.tasks == 2


def test_a_ranking_of_one_task_is_none(tmp_path: Path, write_run: WriteRun) -> None:
    for method in ("fedavg", "map", "fedmr"):
        write_run(method, [0.5], method=method)
    assert ranking(load_runs([tmp_path])) is None


def test_every_method_is_compared_with_the_best_one(tmp_path: Path, write_run: WriteRun) -> None:
    for seed in range(3):
        write_run(f"a{seed}", [0.5 + 0.01 * seed], method="fedavg", seed=seed)
        write_run(f"m{seed}", [0.6 + 0.01 * seed], method="map", seed=seed)
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.titles[2] == "Difference to map, points"
    assert table.rows == [["fedavg", "3", "−10.00", "–", "0.250"]]


def test_a_difference_without_spread_has_neither_interval_nor_t_test() -> None:
    """Three seeds with the same difference say nothing of its spread; the changes of sign say 2 of 8."""
    same = paired({0: 0.51, 1: 0.61, 2: 0.71}, {0: 0.5, 1: 0.6, 2: 0.7})
    assert same.mean == pytest.approx(1.0)
    assert math.isnan(same.half)
    assert math.isnan(same.p_t)
    assert same.p_signs == 0.25
    equal = paired({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert (equal.mean, equal.half, equal.p_t) == (0.0, 0.0, 1.0)


# FedProx is 2 points above FedAvg with each seed of both, and has two seeds more, which are hard
HARD = {
    "fedavg": {0: 0.800, 1: 0.802, 2: 0.804},
    "fedprox": {0: 0.820, 1: 0.823, 2: 0.823, 3: 0.700, 4: 0.700},
}


def test_a_method_is_not_the_best_because_others_have_hard_seeds_more(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for method, scores in HARD.items():
        for seed, score in scores.items():
            write_run(f"{method}{seed}", [score], method=method, seed=seed)
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.titles[2] == "Difference to fedprox, points"
    assert table.rows[0][0] == "fedavg"
    assert established_best(runs, groups(runs), "accuracy_last")


def test_nothing_is_established_while_a_seed_has_failed_and_that_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for method, levels in (("fedavg", (0.5, 0.51, 0.52)), ("map", (0.6, 0.611, 0.622))):
        for seed, level in enumerate(levels):
            write_run(f"{method}{seed}", [level], method=method, seed=seed)
    write_run("map9", [0.1], method="map", seed=9, state="failed")
    runs = load_runs([tmp_path])
    assert not established_best(runs, groups(runs), "accuracy_last")
    assert ("map", "its numbers lack seed 9, whose run failed") in notices(runs, groups(runs))
    whole = runs.without(["map9"])
    assert established_best(whole, groups(whole), "accuracy_last")


def test_a_method_that_ran_on_one_task_more_does_not_take_the_ranking_away(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for split in ("p10c2", "iid:10"):
        for number, method in enumerate(("fedavg", "map", "fedmr")):
            write_run(f"{method}-{split[0]}", [0.5 + 0.1 * number], method=method, split=split)
    write_run("alone", [0.5], method="fedavg", split="dirichlet:10:0.1")
    found = ranking(load_runs([tmp_path]))
    assert found is not None
    assert (found.tasks, sorted(found.ranks)) == (2, ["fedavg", "fedmr", "map"])


def test_the_best_round_is_not_compared_with_that_of_runs_that_are_evaluated_less_often(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """A maximum over ten times as many rounds is higher by chance alone. The last round may be compared."""
    for method, every in (("fedavg", 1), ("map", 10)):
        for seed in range(3):
            folder = write_run(f"{method}{seed}", [0.5 + 0.01 * seed**2], method=method, seed=seed)
            change(folder, "config.federation.eval_every", every)
    runs = load_runs([tmp_path])
    members = groups(runs)
    assert len(classes(runs, members, measure="accuracy_last")) == 1
    assert len(classes(runs, members, measure="accuracy_best")) == 2
    assert comparison_table(runs, members, "accuracy_best") is None
    assert any("best rounds and means over rounds" in said for _, said in notices(runs, members))

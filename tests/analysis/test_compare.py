"""Paired tests, ranks, Holm's correction and agreement with a printed number: values of tables and of sums
by hand.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis.heading import first_lines
from raffed.analysis.metrics.compare import (
    Ranking,
    comparison_table,
    critical_difference,
    established_best,
    paired,
    paired_tables,
    range_quantile,
    ranking,
    seeds_note,
    sign_changes,
)
from raffed.analysis.metrics.equivalence import PrintedNumber, agreement, difference
from raffed.analysis.metrics.holm import benjamini_hochberg, holm
from raffed.analysis.metrics.summary import summary, to_text
from raffed.analysis.report import write_report
from raffed.analysis.runs.comparable import classes, notices, why_not
from raffed.analysis.runs.groups import groups
from scipy import stats

from tests.analysis.conftest import WriteRun, change


def test_a_paired_difference_counts_common_seeds_only() -> None:
    """Differences 1, 2, 3 points: mean 2, s = 1, t = 2√3 with 2 degrees of freedom."""
    found = paired({0: 0.51, 1: 0.52, 2: 0.53, 7: 0.9}, {0: 0.5, 1: 0.5, 2: 0.5, 8: 0.1})
    assert (found.seeds, found.mean) == (3, pytest.approx(2.0))
    assert found.p_t == pytest.approx(stats.ttest_rel([0.51, 0.52, 0.53], [0.5, 0.5, 0.5]).pvalue)
    assert found.p_signs == 0.25  # +++ and --- of 8
    assert math.isnan(paired({0: 0.5}, {0: 0.4}).p_t)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=6))
def test_sign_changes_are_all_counted_and_ties_stay_ties(points: list[int]) -> None:
    """Accuracies over a test set of 2,000 samples: whole numbers give the exact count, 0.05 points do not."""
    sums = [abs(sum(map(int.__mul__, signs, points))) for signs in product((1, -1), repeat=len(points))]
    exact = sum(one >= abs(sum(points)) for one in sums) / len(sums)
    differences = [100 * ((1000 + one) / 2000 - 1000 / 2000) for one in points]
    assert sign_changes(differences) == pytest.approx(exact, abs=1e-12)
    assert math.isnan(sign_changes([1.0] * 15))


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_quantiles_are_those_of_demsar_s_table(methods: int, q: float) -> None:
    """Four classifiers on 14 data sets: 2.569 √(4·5/(6·14)) = 1.25 (Demšar 2006, section 3.2.2)."""
    assert range_quantile(methods) / math.sqrt(2) == pytest.approx(q, abs=1e-3)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_ranks_are_means_over_the_tasks_of_all_methods_and_ties_share(write_run: WriteRun) -> None:
    """FedAvg ran on one task more, which does not take the ranking away."""
    scores = {"fedavg": (0.5, 0.5), "map": (0.7, 0.5), "fedmr": (0.6, 0.9)}
    for method, (first, second) in scores.items():
        write_run(f"{method}-p", [first], method=method)
        write_run(f"{method}-i", [second], method=method, split="iid:10")
    write_run("alone", [0.5], split="dirichlet:10:0.1")
    runs = write_run.load()
    found = ranking(runs)
    assert found.ranks == {"fedavg": (3 + 2.5) / 2, "map": (1 + 2.5) / 2, "fedmr": (2 + 1) / 2}
    assert found.tasks == 2
    others = [name for name, split in runs.runs["partition"].items() if split != "p10c2"]
    assert ranking(runs.without([str(name) for name in others])) is None, "a ranking of one task is none"
    spans = Ranking({"a": 1.0, "b": 1.8, "c": 2.6, "d": 5.0}, 1.0, 9).cliques()
    assert spans == [(1.0, 1.8), (1.8, 2.6)]


def test_a_difference_without_spread_has_neither_interval_nor_t_test() -> None:
    """Three seeds with the same difference say nothing of its spread; the changes of sign say 2 of 8."""
    same = paired({0: 0.51, 1: 0.61, 2: 0.71}, {0: 0.5, 1: 0.6, 2: 0.7})
    assert same.mean == pytest.approx(1.0)
    assert math.isnan(same.half)
    assert math.isnan(same.p_t)
    assert same.p_signs == 0.25
    equal = paired({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert (equal.mean, equal.half, equal.p_t) == (0.0, 0.0, 1.0)


def test_nothing_is_established_while_a_seed_has_failed_and_that_is_said(write_run: WriteRun) -> None:
    for method, levels in (("fedavg", (0.5, 0.51, 0.52)), ("map", (0.6, 0.611, 0.622))):
        for seed, level in enumerate(levels):
            write_run(f"{method}{seed}", [level], method=method, seed=seed)
    write_run("map9", [0.1], method="map", seed=9, state="failed")
    runs = write_run.load()
    assert not established_best(runs, groups(runs), "accuracy_last")
    assert ("map", "it has no finished run of seed 9, which failed") in notices(runs, groups(runs))
    assert first_lines(runs) == [("digits · p10c2", ["Not tested, because of failed runs: map."])]
    whole = runs.without(["map9"])
    assert established_best(whole, groups(whole), "accuracy_last")
    write_run("fedavg9", [0.1], seed=9, state="failed")
    others = write_run.load().without(["map9"])
    assert first_lines(others) == [("digits · p10c2", ["Not tested, because of failed runs: fedavg."])]


def test_a_method_without_a_finished_run_is_not_the_best_and_stands_apart(write_run: WriteRun) -> None:
    """Both failed after the same round, so they are the largest set of rows that may be compared."""
    for seed in range(3):
        write_run(f"fedavg{seed}", [0.5, 0.5], seed=seed)
        for method, level in (("map", 0.3 + 0.01 * seed), ("fedmr", 0.2)):
            write_run(f"{method}{seed}", [level], method=method, seed=seed, state="failed")
    runs = write_run.load()
    assert not established_best(runs, groups(runs), "accuracy_last")
    assert [group.label for group in groups(runs) if why_not(runs, group)] == ["fedmr", "map"]


def test_the_best_round_is_not_compared_with_runs_evaluated_less_often(write_run: WriteRun) -> None:
    """A maximum over ten times as many rounds is higher by chance alone. The last round may be compared."""
    for method, every in (("fedavg", 1), ("map", 10)):
        for seed in range(3):
            folder = write_run(f"{method}{seed}", [0.5 + 0.01 * seed**2], method=method, seed=seed)
            change(folder, "config.federation.eval_every", every)
    runs = write_run.load()
    members = groups(runs)
    assert len(classes(runs, members, measure="accuracy_last")) == 1
    assert len(classes(runs, members, measure="accuracy_best")) == 2
    assert comparison_table(runs, members, "accuracy_best") is None
    assert any("best rounds and means over rounds" in said for _, said in notices(runs, members))


def test_corrected_p_values_are_those_of_a_worked_example_without_the_tests_that_failed() -> None:
    """In ascending order Holm's are 0.005·4, 0.01·3, 0.03·2, 0.04·1 = 0.02, 0.03, 0.06, 0.04; the last
    rises to 0.06. Benjamini's and Hochberg's are 0.005·4/1, 0.01·4/2, 0.03·4/3, 0.04·4/4 = 0.02, 0.02,
    0.04, 0.04.
    """
    given_values = [0.01, math.nan, 0.04, 0.03, 0.005]
    assert holm(given_values) == pytest.approx([0.03, math.nan, 0.06, 0.06, 0.02], nan_ok=True)
    assert benjamini_hochberg(given_values) == pytest.approx([0.02, math.nan, 0.04, 0.04, 0.02], nan_ok=True)
    assert (holm([0.04]), holm([]), benjamini_hochberg([])) == ([0.04], [], [])


SCORES = {
    "map": [0.70, 0.74, 0.71, 0.75],
    "fedprox": [0.60, 0.68, 0.66, 0.64],
    "fedavg": [0.60, 0.61, 0.63, 0.60],
}


def written(write_run: WriteRun, seeds: int) -> None:
    for method, scores in SCORES.items():
        for seed, score in enumerate(scores[:seeds]):
            write_run(f"{method}/seed-{seed}", [score], method=method, seed=seed)


def test_a_table_corrects_for_all_methods_that_are_compared_with_the_best(write_run: WriteRun) -> None:
    written(write_run, 4)
    runs = write_run.load()
    table = comparison_table(runs, groups(runs))
    assert table.titles[2:5] == ["Difference to map, points", "p (paired t)", "p (Holm)"]
    raw = [float(stats.ttest_rel(SCORES["map"], SCORES[name]).pvalue) for name in ("fedprox", "fedavg")]
    assert raw[1] < raw[0]  # so the smaller one is doubled, and the other one stays
    assert [row[0] for row in table.rows] == ["fedprox", "fedavg"]
    assert [row[3] for row in table.rows] == [f"{p:.3f}" for p in raw]
    assert [row[4] for row in table.rows] == [f"{max(raw[0], 2 * raw[1]):.3f}", f"{2 * raw[1]:.3f}"]


def test_a_report_begins_with_who_is_above_the_baseline_and_what_its_seeds_cannot_show(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Two tests against FedAvg: Holm doubles the smaller p. A sign test of four seeds has 2/2⁴ at least."""
    written(write_run, 4)
    write_run("fednova", [0.5, 0.5], method="fednova")
    p = {name: float(stats.ttest_rel(SCORES[name], SCORES["fedavg"]).pvalue) for name in SCORES}
    assert 2 * p["map"] < 0.05 < p["fedprox"] < 2 * p["fedprox"]
    [(task, lines)] = first_lines(write_run.load())
    assert task == "digits · p10c2"
    assert lines == [
        f"In aggregation, map (+11.50 points, p = {2 * p['map']:.3f}, 4 seeds) is above fedavg; "
        f"no difference to fedavg is shown for fedprox (p ≥ {p['fedprox']:.3f}, 4 seeds).",
        "Not comparable with fedavg: fednova.",
        "With 4 seeds the p-value of the sign test cannot be below 0.12.",
    ]
    page = write_report([tmp_path], tmp_path / "out").read_text(encoding="utf-8")
    assert page.index("<h1>") < page.index("In aggregation, MAP (+11.50 points") < page.index('class="facts"')


def test_two_seeds_are_too_few(write_run: WriteRun) -> None:
    written(write_run, 2)
    runs = write_run.load()
    assert "±" not in to_text(summary(runs))
    table = comparison_table(runs, groups(runs))
    none = ["–"] * 3
    assert table.rows == [["fedprox", "2", "−8.00", *none], ["fedavg", "2", "−11.50", *none]]
    assert "two seeds are too few" in seeds_note(groups(runs))
    assert not established_best(runs, groups(runs), "accuracy_last")


def test_the_best_over_common_seeds_is_bold(tmp_path: Path, write_run: WriteRun) -> None:
    """MAP is 10 points above FedAvg with each seed of both. FedAvg's mean is higher for its further seeds."""
    for seed in range(9):
        if seed < 3:
            write_run(f"map{seed}", [0.6 + 0.01 * seed], method="map", seed=seed)
        write_run(f"fedavg{seed}", [0.5 + 0.0101 * seed if seed < 3 else 0.9], seed=seed)
    runs = write_run.load()
    table = comparison_table(runs, groups(runs))
    assert table.titles[2] == "Difference to map, points"
    assert table.rows[0][:2] == ["fedavg", "3"]
    assert established_best(runs, groups(runs), "accuracy_last") == {"map"}
    page = write_report([tmp_path], tmp_path / "report").read_text(encoding="utf-8")
    assert "<strong>61.00" in page
    for seed in range(10, 13):
        write_run(f"moon{seed}", [0.9], method="moon", seed=seed)
    runs = write_run.load()
    rows = {row[0]: row[1:3] for row in paired_tables(runs, groups(runs))["Differences, paired by seed"].rows}
    assert rows["moon"] == ["0", "–"]
    without = runs.without([f"map{seed}" for seed in range(3)])
    said = "What differs cannot be known: they share no seed, and three are the least."
    assert first_lines(without) == [("digits · p10c2", [said])]
    assert not established_best(runs, groups(runs), "accuracy_last"), "nothing is known of MOON's difference"


NAN = math.nan


@pytest.mark.parametrize(
    ("ours", "spread", "runs"),
    [([80.0, 81.0, 80.4], 0.3, 3), ([80.0, 80.1], 0.5, 2), ([70.0, 75.0, 80.0, 91.0], 0.0, 3)],
)
def test_the_interval_is_welch_s_of_the_two_means(ours: list[float], spread: float, runs: int) -> None:
    """scipy's test of Welch has the same difference, error, freedom and interval."""
    count, mean, deviation = len(ours), float(np.mean(ours)), float(np.std(ours, ddof=1))
    welch = stats.ttest_ind_from_stats(mean, deviation, count, 80.0, spread, runs, equal_var=False)
    found = difference(ours, PrintedNumber(80.0, spread, runs))
    assert found.mean == pytest.approx(mean - 80.0)
    assert found.mean / found.error == pytest.approx(welch.statistic)
    assert 2 * stats.t.sf(abs(found.mean) / found.error, found.freedom) == pytest.approx(welch.pvalue)
    for inside in (0.90, 0.95):
        wanted = stats.t.interval(inside, found.freedom, found.mean, found.error)
        assert found.interval(inside) == pytest.approx(wanted)


EXACT = PrintedNumber(80.0)
NARROW = [-0.1, 0.0, 0.1]  # error 0.1 / √3, so half of the 90 % interval is 2.920 · 0.0577 = 0.169


@pytest.mark.parametrize(
    ("off", "margin", "word"),
    [
        (0.83, 1.0, "agrees"),
        (0.84, 1.0, "too few seeds"),
        (-0.84, 1.0, "too few seeds"),
        (1.24, 1.0, "too few seeds"),  # half of the 95 % interval is 4.303 · 0.0577 = 0.248
        (1.25, 1.0, "differs"),
        (-1.25, 1.0, "differs"),
    ],
)
def test_a_number_agrees_inside_and_differs_outside(off: float, margin: float, word: str) -> None:
    assert agreement([80.0 + off + value for value in NARROW], EXACT, margin) == word


@pytest.mark.parametrize("ours", [[97.0], [80.0, 80.0, 80.0], [80.0, math.inf, 80.0]])
def test_seeds_that_say_nothing_of_their_spread_are_never_a_verdict(ours: list[float]) -> None:
    """Counts may be alike in all seeds."""
    assert agreement(ours, EXACT, 50.0) == "too few seeds"
    assert agreement([80.5] * 3, EXACT, 1.0, counted=True) == "agrees"
    assert agreement([81.5] * 3, EXACT, 1.0, counted=True) == "differs"
    assert agreement([math.inf] * 3, EXACT, 1.0, counted=True) == "differs", "rounds that never suffice"


@pytest.mark.parametrize("seeds", [2, 3, 10])
@pytest.mark.parametrize(("spread", "runs", "more"), [(NAN, 0, 0.0), (0.5, 3, 0.02)])
def test_a_coin_on_the_edge_of_the_margin_agrees_in_5_and_differs_in_2_5_per_cent_of_tables(
    seeds: int, spread: float, runs: int, more: float
) -> None:
    """The true difference is the margin, so every verdict is wrong. Of 1,500 tables, four deviations more.

    Without a printed spread the tests are exact; Welch's freedom is an approximation for so few runs.
    """
    random = np.random.default_rng(59)
    words = []
    for _ in range(1500):
        told = PrintedNumber(0.0)
        if runs:
            drawn = random.normal(0.0, spread, runs)
            told = PrintedNumber(float(drawn.mean()), float(drawn.std(ddof=1)), runs)
        words.append(agreement(list(random.normal(1.0, 0.5, seeds)), told, 1.0))
    assert words.count("agrees") / 1500 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1500) + more
    assert words.count("differs") / 1500 <= 0.025 + 4 * math.sqrt(0.025 * 0.975 / 1500) + more

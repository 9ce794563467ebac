"""A number agrees if Welch's whole interval of its difference to the print is in the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from raffed.analysis.metrics.equivalence import PrintedNumber, agreement, difference
from scipy import stats

NAN = math.nan


@pytest.mark.parametrize(
    ("ours", "spread", "runs"),
    [
        ([80.0, 81.0, 80.4], 0.3, 3),
        ([80.0, 81.0, 80.4], 3.0, 5),
        ([80.0, 80.1], 0.5, 2),
        ([70.0, 75.0, 80.0, 91.0], 0.0, 3),
        ([79.0, 80.0, 82.0, 83.0, 80.5], 1.2, 10),
    ],
)
def test_the_interval_is_welch_s_of_the_two_means(ours: list[float], spread: float, runs: int) -> None:
    """scipy's test of Welch has the same difference, error, freedom and interval."""
    count, mean, deviation = len(ours), float(np.mean(ours)), float(np.std(ours, ddof=1))
    welch = stats.ttest_ind_from_stats(mean, deviation, count, 80.0, spread, runs, equal_var=False)
    found = difference(ours, PrintedNumber(80.0, spread, runs))
    assert found is not None
    assert found.mean == pytest.approx(mean - 80.0)
    assert found.mean / found.error == pytest.approx(welch.statistic)
    assert 2 * stats.t.sf(abs(found.mean) / found.error, found.freedom) == pytest.approx(welch.pvalue)
    for inside in (0.90, 0.95):
        wanted = stats.t.interval(inside, found.freedom, found.mean, found.error)
        assert found.interval(inside) == pytest.approx(wanted)


@pytest.mark.parametrize(("spread", "runs"), [(0.5, 0), (NAN, 3), (0.5, 1), (NAN, 0)])
def test_a_print_of_unknown_spread_or_runs_adds_nothing_and_leaves_student_s_interval(
    spread: float, runs: int
) -> None:
    ours = [80.0, 81.0, 80.4]
    found = difference(ours, PrintedNumber(80.0, spread, runs))
    assert found is not None
    assert found.freedom == 2
    mean, error = np.mean(ours) - 80.0, stats.sem(ours)
    assert found.interval(0.90) == pytest.approx(stats.t.interval(0.90, 2, mean, error))


def test_a_printed_spread_of_0_counts_as_0() -> None:
    ours, known = [80.0, 81.0, 80.4], difference([80.0, 81.0, 80.4], PrintedNumber(80.0, 0.0, 3))
    assert known == difference(ours, PrintedNumber(80.0))


EXACT = PrintedNumber(80.0)
NARROW = [-0.1, 0.0, 0.1]  # error 0.1 / √3, so half of the 90 % interval is 2.920 · 0.0577 = 0.169


@pytest.mark.parametrize(
    ("off", "margin", "word"),
    [
        (0.0, 0.17, "agrees"),
        (0.0, 0.16, "too few seeds"),
        (0.83, 1.0, "agrees"),
        (0.84, 1.0, "too few seeds"),
        (-0.84, 1.0, "too few seeds"),
        (1.24, 1.0, "too few seeds"),  # half of the 95 % interval is 4.303 · 0.0577 = 0.248
        (1.25, 1.0, "differs"),
        (-1.25, 1.0, "differs"),
    ],
)
def test_a_number_agrees_inside_differs_outside_and_needs_more_seeds_in_between(
    off: float, margin: float, word: str
) -> None:
    assert agreement([80.0 + off + value for value in NARROW], EXACT, margin) == word


@pytest.mark.parametrize(
    "ours", [[], [80.0], [97.0], [80.0, 80.0, 80.0], [80.0, math.inf, 80.0], [80.0, NAN, 80.0]]
)
def test_one_seed_seeds_that_are_alike_and_values_that_are_not_finite_are_never_a_verdict(
    ours: list[float],
) -> None:
    assert agreement(ours, EXACT, 50.0) == "too few seeds"


def test_counts_that_are_alike_in_all_seeds_have_no_error() -> None:
    assert agreement([80.5] * 3, EXACT, 1.0, counted=True) == "agrees"
    assert agreement([81.5] * 3, EXACT, 1.0, counted=True) == "differs"


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


def test_few_seeds_of_much_noise_decide_nothing() -> None:
    """With three seeds and an error as large as the margin, hardly any table of equal numbers agrees."""
    random = np.random.default_rng(59)
    words = [agreement(list(random.normal(0.0, 1.0, 3)), PrintedNumber(0.0), 1.0) for _ in range(1000)]
    assert words.count("differs") <= 10
    assert words.count("agrees") < 250

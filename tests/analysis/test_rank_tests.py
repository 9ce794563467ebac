"""Ranks of methods over blocks, with Friedman's test and Holm's correction over all pairs."""

from __future__ import annotations

import math

import pytest
from raffed.analysis.metrics.rank_tests import friedman, holm_difference, holm_ranking

# Demšar 2006, section 3.2.2: mean ranks of four versions of C4.5 over 14 data sets
DEMSAR = {"C4.5": 3.143, "C4.5+m": 2.000, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}


def test_friedman_s_test_is_that_of_demsar_s_example() -> None:
    """χ² = 9.28 and F = 3.69 with 3 and 39 degrees of freedom, whose critical value at 0.05 is 2.85."""
    p = friedman(DEMSAR, 14)
    assert 0.015 < p < 0.025
    same = dict.fromkeys(DEMSAR, 2.5)
    assert friedman(same, 14) == pytest.approx(1.0)


def test_holm_s_critical_difference_is_where_its_correction_stops() -> None:
    """k = 4, N = 14: the standard error is √(4·5/(6·14)) = 0.488. z = 2.416, 2.344, 1.904, … for the largest
    differences; p = 0.0157 and 0.0191, above 0.05/6 = 0.0083: no pair of the example is separated.
    """
    assert holm_difference(DEMSAR, 14) == pytest.approx(3.143 - 1.964)
    far = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    # N = 14: z = 6.15, 4.10, 4.10, 2.05, 2.05, 2.05; the last three have p = 0.040 and stop at 0.05/3
    assert holm_difference(far, 14) == 1.0
    assert holm_difference(far, 100) == 0.0, "with 100 blocks all are separated"


def test_only_blocks_that_all_methods_have_count() -> None:
    blocks = [f"split {seed}" for seed in range(20)]
    scores = {name: dict.fromkeys(blocks, place / 10) for place, name in enumerate("cba")}
    scores["a"]["another"] = 0.9
    found = holm_ranking(scores)
    assert found is not None
    assert (found.tasks, found.ranks) == (20, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert found.cliques() == []


def test_methods_that_friedman_s_test_does_not_tell_apart_are_one_group() -> None:
    """Each of three methods is first, second and third once."""
    orders = ("abc", "bca", "cab")
    scores = {
        name: {str(number): -float(order.index(name)) for number, order in enumerate(orders)}
        for name in "abc"
    }
    found = holm_ranking(scores)
    assert found is not None
    assert set(found.ranks.values()) == {2.0}
    assert friedman(found.ranks, 3) > 0.9
    assert found.difference == 3.0


def test_two_methods_or_one_block_have_no_ranking() -> None:
    assert holm_ranking({"a": {"1": 0.1, "2": 0.2}, "b": {"1": 0.1, "2": 0.2}}) is None
    assert holm_ranking({name: {"1": 0.1} for name in "abc"}) is None
    assert not math.isnan(friedman({"a": 1.0, "b": 2.0}, 5))

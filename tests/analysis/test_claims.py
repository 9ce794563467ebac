"""A claim is judged by the sum of its cells seed by seed: expected values by hand, t(2) = 4.302653."""

from __future__ import annotations

import math

import pytest
from raffed.analysis.reproduction.claims import ClaimResult, claim_results, claim_table

from tests.analysis.conftest import WriteTable


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([], "not run"),
        ([1.0, 1.1], "too few seeds"),
        ([1.0, 1.1, 0.9], "holds"),
        ([-1.0, -1.1, -0.9], "fails"),
        ([1.0, -1.0, 0.5], "not separated"),
        ([0.5, 0.5, 0.5], "not separated"),  # without any spread nothing is known of it
        ([60.0, 45.0, math.inf], "not separated"),
        ([60.0, 45.0, math.nan], "not separated"),
    ],
)
def test_a_claim_holds_or_fails_only_where_its_whole_interval_does(values: list[float], word: str) -> None:
    assert ClaimResult("", values).verdict == word
    given = "holds" if word in ("holds", "not run") else "says nothing: its premise does not hold"
    assert ClaimResult("", [1.0, 1.1, 0.9], given=values).verdict == given


@pytest.mark.parametrize(
    ("values", "within", "word"),
    [
        ([0.0], 0.0, "holds"),
        ([0.0, 1e-9], 0.0, "fails"),
        ([], 0.0, "not run"),
        ([0.1, 0.1], 0.3, "too few seeds"),
        ([-0.1, -0.1, -0.1], 0.3, "holds"),
        ([0.4, 0.4, 0.4], 0.3, "fails"),
        ([-0.4, -0.4, -0.4], 0.3, "fails"),
        ([0.0, 0.0, 0.3], 0.3, "not separated"),
    ],
)
def test_what_is_near_holds_where_the_whole_interval_is_and_what_is_equal_in_every_seed(
    values: list[float], within: float, word: str
) -> None:
    """The interval of 0, 0 and 0.3 is 0.1 ± 0.43. Counts that are alike in all seeds separate."""
    assert ClaimResult("", values, (), within).verdict == word
    assert ClaimResult("", [2.0, 2.0, 2.0], counted=True).verdict == "holds"


def test_seeds_that_all_cells_have_are_paired(write_table: WriteTable) -> None:
    """b has one more seed. The column m is the mean of IID; the last accuracy is the best one here."""
    claims = [
        {"text": "a above b", "terms": [[1.0, "a", "IID"], [-1.0, "b", "IID"]]},
        {"text": "half", "terms": [[0.5, "a", "m"], [-1.0, "b", "IID", "accuracy_best"]], "minus": 20.0},
        {"text": "a is a", "terms": [[1.0, "a", "IID"], [-1.0, "a", "IID"]], "within": 0.0},
        {"text": "b", "terms": [[1.0, "b", "IID"]], "given": [[1.0, "a", "IID"], [-1.0, "b", "IID"]]},
        {"text": "elsewhere", "terms": [[1.0, "a", "nowhere"]]},
    ]
    averages = [{"column": "m", "of": ["IID"], "whole": 1, "printed": {}}]
    rows = {"a": (None, [0.8, 0.7]), "b": (None, [0.5, 0.6, 0.1])}
    item, runs = write_table(rows, scale="proxy", baseline="b", claims=claims, averages=averages)
    above, half, same, given, absent = claim_results(item, runs)
    assert above.values == pytest.approx([30.0, 10.0])
    assert half.values == pytest.approx([-30.0, -45.0])
    assert (given.values, given.given) == (pytest.approx([50.0, 60.0]), pytest.approx([30.0, 10.0]))
    assert (same.verdict, absent.verdict) == ("holds", "not run")
    table = claim_table(item, runs)
    assert table.rows[0] == ["a above b", "+20.00", "2", "too few seeds"]
    smoke = claim_table(item._replace(about={**item.about, "scale": "smoke"}), runs)
    assert [(row[0], row[-1]) for row in smoke.rows] == [("a is a", "runs, and the bits are equal")]

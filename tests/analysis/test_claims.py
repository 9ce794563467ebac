"""A claim is judged by the sum of its cells seed by seed: expected values by hand, t(2) = 4.302653."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.claims import ClaimResult, claim_results, claim_table
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([], "not run"),
        ([1.0], "too few seeds"),
        ([1.0, 1.1, 0.9], "holds"),
        ([-1.0, -1.1, -0.9], "fails"),
        ([1.0, -1.0, 0.5], "not separated"),
        ([1.0, 1.1], "too few seeds"),
        ([0.0, 0.0, 0.0], "not separated"),
        ([0.5, 0.5, 0.5], "not separated"),  # without any spread nothing is known of it
        ([60.0, 45.0, math.inf], "not separated"),
        ([60.0, 45.0, -math.inf], "not separated"),
        ([60.0, 45.0, math.nan], "not separated"),
    ],
)
def test_a_claim_holds_or_fails_only_where_its_whole_interval_does(values: list[float], word: str) -> None:
    assert ClaimResult("", values).verdict == word


def test_counts_that_are_alike_in_all_seeds_separate() -> None:
    """A method sends so many numbers with every seed."""
    assert ClaimResult("", [2.0, 2.0, 2.0], counted=True).verdict == "holds"
    assert ClaimResult("", [-2.0, -2.0, -2.0], counted=True).verdict == "fails"


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ([1.0, 1.1, 0.9], "holds"),
        ([], "holds"),
        ([-1.0, -1.1, -0.9], "says nothing: its premise does not hold"),
        ([5.0, -1.0, 2.0], "says nothing: its premise does not hold"),
    ],
)
def test_a_claim_says_nothing_where_its_premise_does_not_hold(given: list[float], word: str) -> None:
    assert ClaimResult("", [1.0, 1.1, 0.9], given).verdict == word


@pytest.mark.parametrize(
    ("values", "within", "word"),
    [
        ([0.0], 0.0, "holds"),
        ([0.0, 0.0], 0.0, "holds"),
        ([0.0, 1e-9], 0.0, "fails"),
        ([1e-9], 0.0, "fails"),
        ([], 0.0, "not run"),
        ([0.1], 0.3, "too few seeds"),
        ([0.1, 0.1], 0.3, "too few seeds"),
        ([0.1, 0.1, 0.1], 0.3, "holds"),
        ([-0.1, -0.1, -0.1], 0.3, "holds"),
        ([0.4, 0.4, 0.4], 0.3, "fails"),
        ([-0.4, -0.4, -0.4], 0.3, "fails"),
        ([0.0, 0.0, 0.3], 0.3, "not separated"),
    ],
)
def test_what_is_near_holds_where_the_whole_interval_is_and_what_is_equal_in_every_seed(
    values: list[float], within: float, word: str
) -> None:
    """The interval of 0, 0 and 0.3 is 0.1 ± 0.43."""
    assert ClaimResult("", values, (), within).verdict == word


def test_the_interval_is_student_s() -> None:
    one = ClaimResult("", [1.0, 2.0, 3.0])
    assert one.mean == 2.0
    assert one.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@pytest.fixture
def item(tmp_path: Path, write_run: WriteRun) -> Reproduction:
    """Accuracy of a: 0.8, 0.7; of b: 0.5, 0.6, of seeds 0, 1; b also has seed 2."""
    runs: dict[str, list[str]] = {"a": [], "b": []}
    for row, seed, value in (("a", 0, 0.8), ("a", 1, 0.7), ("b", 0, 0.5), ("b", 1, 0.6), ("b", 2, 0.1)):
        folder = write_run(f"{row}{seed}", [value], method=row, seed=seed)
        runs[row].append(folder.name)
    claims = [
        {"text": "a above b", "terms": [[1.0, "a", "c"], [-1.0, "b", "c"]]},
        {"text": "half of a above b", "terms": [[0.5, "a", "c"], [-1.0, "b", "c"]]},
    ]
    cells = [{"row": row, "column": "c", "printed": {}, "runs": names} for row, names in runs.items()]
    return written_item(tmp_path, cells, scale="proxy", baseline="b", claims=claims)


def test_seeds_that_all_cells_have_are_paired(item: Reproduction) -> None:
    first, second = claim_results(item, load_runs(run_folders(item)))
    assert first.values == pytest.approx([30.0, 10.0])
    assert second.values == pytest.approx([-10.0, -25.0])


def test_a_premise_is_read_off_the_same_seeds(item: Reproduction) -> None:
    claims = [{"text": "", "terms": [[1.0, "b", "c"]], "given": [[1.0, "a", "c"], [-1.0, "b", "c"]]}]
    (found,) = claim_results(
        Reproduction(item.folder, {**item.about, "claims": claims}), load_runs(run_folders(item))
    )
    assert found.values == pytest.approx([50.0, 60.0])  # of seeds 0 and 1
    assert found.given == pytest.approx([30.0, 10.0])


def test_terms_may_be_of_averages_and_of_another_measure_and_a_number_is_taken_off(
    item: Reproduction,
) -> None:
    """The column m is the mean of c alone; the last accuracy is the best one here, so that their
    difference is 0.
    """
    terms = [[1.0, "a", "m"], [-1.0, "b", "c", "accuracy_best"]]
    claims = [
        {"text": "", "terms": terms, "minus": 20.0, "within": 15.0},
        {"text": "", "terms": [[1.0, "a", "nowhere"]]},
    ]
    averages = [{"column": "m", "of": ["c"], "whole": 1, "printed": {}}]
    about = {**item.about, "claims": claims, "averages": averages}
    found, absent = claim_results(Reproduction(item.folder, about), load_runs(run_folders(item)))
    assert found.values == pytest.approx([10.0, -10.0])
    assert found.within == 15.0
    assert absent.verdict == "not run"


def test_smoke_runs_say_what_is_equal_and_nothing_else(item: Reproduction) -> None:
    same = [[1.0, "a", "c"], [-1.0, "a", "c"]]
    claims = [*item.about["claims"], {"text": "a is a", "terms": same, "minus": 0.0, "within": 0.0}]
    smoke = Reproduction(item.folder, {**item.about, "scale": "smoke", "claims": claims})
    table = claim_table(smoke, load_runs(run_folders(item)))
    assert table is not None
    assert [(line[0], line[-1]) for line in table.rows] == [("a is a", "runs, and the bits are equal")]


def test_the_sheet_says_it_with_a_sign_and_smoke_says_nothing(item: Reproduction) -> None:
    runs = load_runs(run_folders(item))
    table = claim_table(item, runs)
    assert table is not None
    assert table.rows[0] == ["a above b", "+20.00", "2", "too few seeds"]
    assert claim_table(Reproduction(item.folder, {**item.about, "scale": "smoke"}), runs) is None

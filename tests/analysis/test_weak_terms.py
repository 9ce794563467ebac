"""A setting whose terms are below 5 % of the cross-entropy's gradient is marked as no test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.metrics.equivalence import PrintedNumber
from raffed.analysis.reproduction.claims import ClaimResult, claim_results, tally
from raffed.analysis.reproduction.item_views import item_view
from raffed.analysis.reproduction.term_strength import untested, weak_terms
from raffed.analysis.reproduction.verdicts import Line, paper_table
from raffed.reproductions.pages.findings import findings, gain_table, judged

from raffed.results import Row
from raffed.results.metrics import TERM_STRENGTH, TEST_ACCURACY
from tests.analysis.test_item_views import Written, item

Both = tuple[float, float]  # strengths at the start and at the end


def rows(accuracy: float, terms: Mapping[str, Both]) -> list[Row]:
    """The rows of one run of three rounds; in the first one the clients have received nothing yet."""
    found = [TEST_ACCURACY.row(3, accuracy, n=100)]
    for name, both in terms.items():
        for (model, metric), value in zip(TERM_STRENGTH.items(), both, strict=True):
            assert model in ("global", "local")
            found += [
                metric.row(number, 0.0 if number == 1 else value, part=name, n=5) for number in (1, 2, 3)
            ]
    return found


def measured(folder: Path, methods: Mapping[str, Mapping[str, Both]], **about: Any) -> Written:
    """An item with FedAvg and these methods in the column c, one run each, with claims that each is above."""
    written = {"FedAvg | c": rows(0.5, {})}
    written |= {f"{name} | c": rows(0.6, terms) for name, terms in methods.items()}
    found, runs = item(folder, written, "accuracy_last", **about)
    claims = [
        {"text": f"{name} above", "terms": [[1.0, name, "c"], [-1.0, "FedAvg", "c"]], "within": 50.0}
        for name in methods
    ]
    return found._replace(about={**found.about, "scale": "proxy", "claims": claims}), runs


@pytest.mark.parametrize(
    ("terms", "weak"),
    [
        ({"pull": (0.0, 0.099)}, ["pull"]),
        ({"pull": (0.0, 0.1)}, []),
        ({"pull": (0.06, 0.01)}, ["pull"]),
        ({"pull": (0.08, 0.04)}, []),
        ({"pull": (float("nan"), 0.01)}, ["pull"]),
        ({"pull": (float("nan"), float("nan"))}, []),
        ({"intra": (0.3, 0.8), "inter": (0.01, 0.02)}, ["inter"]),
    ],
)
def test_a_term_is_weak_if_the_mean_of_its_path_is_below_5_per_cent(
    terms: dict[str, Both], weak: list[str]
) -> None:
    assert weak_terms(terms) == weak


METHODS = {
    "Off": {"intra": (0.01, 0.03)},
    "On": {"intra": (0.2, 0.9)},
    "Half": {"intra": (0.2, 0.9), "inter": (0.001, 0.02)},
}


def test_a_setting_is_no_test_if_all_of_its_terms_are_weak(tmp_path: Path) -> None:
    found, runs = measured(tmp_path, METHODS)
    assert untested(found, runs) == {("Off", "c"): "intra"}


def test_one_round_in_which_a_term_is_huge_does_not_make_it_strong(tmp_path: Path) -> None:
    """Where the cross-entropy is all but 0, the ratio to it is huge: 100 in one of five rounds, 0.01 else."""
    values = {1: 0.0, 2: 0.01, 3: 100.0, 4: 0.01, 5: 0.01}
    spiked = [
        metric.row(number, value, part="intra", n=5)
        for metric in TERM_STRENGTH.values()
        for number, value in values.items()
    ]
    written = {
        "FedAvg | c": [TEST_ACCURACY.row(5, 0.5, n=100)],
        "FedMR | c": [TEST_ACCURACY.row(5, 0.6, n=100), *spiked],
    }
    found, runs = item(tmp_path, written, "accuracy_last")
    assert untested(found, runs) == {("FedMR", "c"): "intra"}


def test_the_table_of_the_report_marks_it_and_shows_every_term(tmp_path: Path) -> None:
    found, runs = measured(tmp_path, METHODS)
    words = {line[0]: line for line in paper_table(found, runs).rows}
    assert "no test" in words["Off"]
    assert "no test" not in words["On"] + words["Half"] + words["FedAvg"]
    table = item_view(found, runs).tables["Strength of the terms"]
    assert [(line[0], line[2], line[-1]) for line in table.rows] == [
        ("Off", "intra", "no test of it"),
        ("On", "intra", "strong enough"),
        ("Half", "inter", "no test of it"),
        ("Half", "intra", "strong enough"),
    ]
    assert table.rows[0][3:5] == ["1.0", "3.0"]  # the first round, which has nothing yet, does not count


def test_a_claim_about_such_a_setting_neither_holds_nor_fails(tmp_path: Path) -> None:
    found, runs = measured(tmp_path, METHODS)
    said = {one.text: one.no_test for one in claim_results(found, runs)}
    assert said["On above"] == said["Half above"] == ""
    assert said["Off above"] == "no test: the terms of Off are below 5 %"
    assert ClaimResult("", [1.0, 1.1, 0.9]).verdict == "holds"
    assert ClaimResult("", [1.0, 1.1, 0.9], no_test="no test: x").verdict == "no test: x"
    assert ClaimResult("", [], no_test="no test: x").verdict == "not run"


def test_claims_that_are_no_test_are_counted_together_whatever_their_terms() -> None:
    weak = ["no test: the terms of A are below 5 %", "no test: the terms of B are below 5 %"]
    assert tally(["fails", *weak]) == "3 claims: no test 2, fails 1"


def test_runs_that_did_not_measure_strengths_are_judged_as_before(tmp_path: Path) -> None:
    found, runs = measured(tmp_path, {"On": {}})
    assert untested(found, runs) == {}
    assert "Strength of the terms" not in item_view(found, runs).tables


def test_findings_show_each_gain_beside_the_strength_of_the_terms(tmp_path: Path) -> None:
    found, runs = measured(tmp_path, {"Strong": {"pull": (0.2, 0.5)}, "Weak": {"pull": (0.01, 0.02)}})
    table = gain_table(found, runs)
    assert table is not None
    rows = {line[0]: line for line in table.rows}
    assert rows["FedAvg"][-1] == "baseline"
    assert rows["Strong"][4:] == ["+10.00", "pull 20.0 %, 50.0 %", "too few seeds"]
    assert rows["Weak"][-1] == "no test"


def test_findings_read_the_same_runs_by_another_measure(tmp_path: Path) -> None:
    """Strong is above FedAvg in the last round, and below it in each one's best."""
    falls = [TEST_ACCURACY.row(number, value, n=100) for number, value in ((1, 0.8), (2, 0.7), (3, 0.5))]
    strong = [TEST_ACCURACY.row(1, 0.1, n=100), TEST_ACCURACY.row(2, 0.2, n=100)]
    item(
        tmp_path,
        {"FedAvg | c": falls, "Strong | c": [*strong, *rows(0.6, {"pull": (0.2, 0.5)})]},
        "accuracy_last",
    )
    assert "| +10.00 |" in findings([tmp_path])
    told = findings([tmp_path], "accuracy_best")
    assert "(accuracy_best)" in told
    assert "| −20.00 |" in told


@pytest.mark.parametrize(
    ("gains", "terms", "word"),
    [
        ([1.0, 1.1, 0.9], {"pull": (0.2, 0.5)}, "above"),
        ([-1.0, -1.1, -0.9], {"pull": (0.2, 0.5)}, "below"),
        ([-1.0, 1.1, 0.9], {"pull": (0.2, 0.5)}, "not separated"),
        ([1.0, 1.0, 1.0], {"pull": (0.2, 0.5)}, "not separated"),
        ([1.0, 1.1, 0.9], {"pull": (0.2, 0.5), "push": (0.0, 0.0)}, "above"),
        ([1.0, 1.1, 0.9], {"pull": (0.01, 0.02)}, "no test"),
        ([1.0, 1.1], {"pull": (0.2, 0.5)}, "too few seeds"),
    ],
)
def test_a_finding_needs_strong_terms_three_seeds_and_an_interval_on_one_side(
    gains: list[float], terms: dict[str, Both], word: str
) -> None:
    line = Line("FedMR", "Dir 0.05", PrintedNumber(math.nan), gains, math.nan, gains)
    assert judged(line, terms, "FedAvg") == word


def test_findings_without_a_measured_strength_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run of it measured term_strength"):
        findings([tmp_path])

"""Holm's correction: a worked example, an independent formula, and what tables make of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.compare import comparison_table, established_best, paired_tables, seeds_note
from raffed.analysis.metrics.holm import benjamini_hochberg, holm
from raffed.analysis.metrics.summary import summary, to_text
from raffed.analysis.report import write_loaded, write_report
from raffed.analysis.runs.groups import groups
from raffed.analysis.sections import task_sections
from scipy import stats as reference

WriteRun = Callable[..., Path]


def test_holm_s_p_values_are_those_of_a_worked_example() -> None:
    """In ascending order 0.005·4, 0.01·3, 0.03·2, 0.04·1 = 0.02, 0.03, 0.06, 0.04; the last rises to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_benjamini_and_hochberg_s_p_values_are_those_of_a_worked_example_without_the_tests_that_failed() -> (
    None
):
    """In ascending order 0.005·4/1, 0.01·4/2, 0.03·4/3, 0.04·4/4 = 0.02, 0.02, 0.04, 0.04."""
    found = benjamini_hochberg([0.01, math.nan, 0.04, 0.03, 0.005])
    assert math.isnan(found.pop(1))
    assert found == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([]) == []


def closed_testing(p_values: Sequence[float]) -> list[float]:
    """The largest Bonferroni p-value min(1, |I| · min p) over all sets I of tests that contain the test.

    Marcus, Peritz and Gabriel (1976): Holm's method is the closure of Bonferroni's.
    """
    tests = range(len(p_values))
    sets = [one for size in range(1, len(p_values) + 1) for one in combinations(tests, size)]
    bonferroni = {one: min(1.0, len(one) * min(p_values[i] for i in one)) for one in sets}
    return [max(value for one, value in bonferroni.items() if i in one) for i in tests]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_holm_s_p_values_are_those_of_the_closed_bonferroni_test(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed_testing(p_values), abs=1e-12)


def test_one_test_needs_no_correction_and_what_was_not_tested_does_not_count() -> None:
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
    adjusted = holm([0.01, math.nan, 0.02])
    assert adjusted[0] == pytest.approx(0.02)
    assert math.isnan(adjusted[1])
    assert adjusted[2] == pytest.approx(0.02)


SCORES = {
    "map": [0.70, 0.74, 0.71, 0.75],
    "fedprox": [0.60, 0.68, 0.66, 0.64],
    "fedavg": [0.60, 0.61, 0.63, 0.60],
}


def written(write_run: WriteRun, seeds: int) -> None:
    for method, scores in SCORES.items():
        for seed, score in enumerate(scores[:seeds]):
            write_run(f"{method}/seed-{seed}", [score], method=method, seed=seed)


def test_a_table_corrects_for_all_methods_that_are_compared_with_the_best(
    tmp_path: Path, write_run: WriteRun
) -> None:
    written(write_run, 4)
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.titles[2:5] == ["Difference to map, points", "p (paired t)", "p (Holm)"]
    raw = [float(reference.ttest_rel(SCORES["map"], SCORES[name]).pvalue) for name in ("fedprox", "fedavg")]
    assert raw[1] < raw[0]  # so the smaller one is doubled, and the other one stays
    assert [row[0] for row in table.rows] == ["fedprox", "fedavg"]
    assert [row[3] for row in table.rows] == [f"{p:.3f}" for p in raw]
    assert [row[4] for row in table.rows] == [f"{max(raw[0], 2 * raw[1]):.3f}", f"{2 * raw[1]:.3f}"]


def test_a_table_corrects_for_sets_that_are_not_comparable_together(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Two sets of two methods, of other rounds, are two tests of one table: the smaller p is doubled."""
    for rounds in (1, 2):
        for method in ("map", "fedprox"):
            for seed, score in enumerate(SCORES[method]):
                scores = [score + 0.001 * rounds * seed * (method == "map")] * rounds
                write_run(f"{method}{rounds}/seed-{seed}", scores, method=method, seed=seed)
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    at = [list(table.titles).index(title) for title in ("p (paired t)", "p (Holm)") if title in table.titles]
    assert len(at) == 2, "two tests stand in the table"
    raw, adjusted = zip(*[(float(row[at[0]]), float(row[at[1]])) for row in table.rows], strict=True)
    assert min(adjusted) == pytest.approx(2 * min(raw), abs=2e-3)


def test_methods_are_compared_with_fedavg_too_if_it_was_run(tmp_path: Path, write_run: WriteRun) -> None:
    written(write_run, 3)
    runs = load_runs([tmp_path])
    tables = paired_tables(runs, groups(runs))
    assert list(tables) == ["Differences, paired by seed", "Differences to fedavg, paired by seed"]
    assert [row[0] for row in tables["Differences to fedavg, paired by seed"].rows] == ["map", "fedprox"]
    assert "corrected for the number of methods" in task_sections(runs, groups(runs))
    runs = runs.without([str(name) for name, method in runs.runs["method"].items() if method == "fedavg"])
    assert list(paired_tables(runs, groups(runs))) == ["Differences, paired by seed"]
    assert "p (Holm)" not in task_sections(runs, groups(runs)), "one test needs no correction"


def test_two_seeds_have_a_mean_but_neither_interval_nor_p_value_and_it_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    written(write_run, 2)
    runs = load_runs([tmp_path])
    assert "±" not in to_text(summary(runs))
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.rows == [["fedprox", "2", "−8.00", "–", "–", "–"], ["fedavg", "2", "−11.50", "–", "–", "–"]]
    assert "two seeds are too few" in seeds_note(groups(runs))
    assert all(method in seeds_note(groups(runs)) for method in SCORES)


def test_one_seed_has_no_interval_and_three_have_one(tmp_path: Path, write_run: WriteRun) -> None:
    written(write_run, 1)
    one = load_runs([tmp_path])
    assert "±" not in to_text(summary(one))
    assert paired_tables(one, groups(one)) == {}
    assert seeds_note(groups(one)) == ""
    for seed in (1, 2):
        for method, scores in SCORES.items():
            write_run(f"{method}/seed-{seed}", [scores[seed]], method=method, seed=seed)
    three = load_runs([tmp_path])
    assert to_text(summary(three)).count("±") >= len(SCORES)
    assert seeds_note(groups(three)) == ""


def test_the_best_is_bold_only_where_it_differs_from_every_other_method(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Of the differences to map, p is 0.012 and 0.010 after Holm's correction; of its rivals', it is 0.09."""
    written(write_run, 4)
    runs = load_runs([tmp_path])
    assert established_best(runs, groups(runs), "accuracy_last")
    page = write_report([tmp_path], tmp_path / "report").read_text()
    assert "<strong>72.50 ± " in page
    rivals = runs.without([str(name) for name, method in runs.runs["method"].items() if method == "map"])
    assert not established_best(rivals, groups(rivals), "accuracy_last")
    single = runs.without([str(name) for name, seed in runs.runs["seed"].items() if seed > 0])
    assert not established_best(single, groups(single), "accuracy_last")
    unsure = write_loaded(single, tmp_path / "single").read_text()
    assert "<strong>" not in unsure

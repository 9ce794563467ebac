"""Paper beside ours: which numbers agree, which claims hold, which runs and settings count in a cell, and
that a proxy is never compared by its level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.equivalence import PrintedNumber
from raffed.analysis.reproduction.cell_values import cell_values
from raffed.analysis.reproduction.claims import ClaimResult, claim_results, claim_table
from raffed.analysis.reproduction.item_runs import Reproduction, best_setting, run_folders, strays
from raffed.analysis.reproduction.verdict_rows import verdict_rows
from raffed.analysis.reproduction.verdicts import Line, paper_table, result_lines, verdict
from raffed.analysis.runs.load import Runs

from tests.analysis.conftest import ONE, OTHER, WriteRun, WriteTable, written_item

NAN = math.nan


def line(
    ours: list[float],
    printed: float = NAN,
    gain: float = NAN,
    gains: tuple[float, ...] = (),
    target: bool = True,
) -> Line:
    return Line("a", "b", PrintedNumber(printed), ours, gain, list(gains), target)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (line([], 80.0), "not run"),
        (line([80.0]), "not printed"),
        (line([79.9, 80.0, 80.1], 80.2), "agrees"),  # 90 % interval −0.2 ± 0.17
        (line([79.4], 80.0, target=False), "no target"),
    ],
)
def test_a_number_agrees_if_its_whole_interval_is_in_the_margin(found: Line, word: str) -> None:
    assert verdict(found, "full", 0.5) == word


@pytest.mark.parametrize(
    ("gain", "gains", "target", "word"),
    [
        (2.0, (3.0, 3.1, 2.9), True, "same order"),
        (2.0, (-3.0, -3.1, -2.9), True, "opposite order"),
        (2.0, (-1.0, 0.0, 1.2), True, "not separated"),
        (2.0, (3.0, 3.0, 3.0), True, "not separated"),  # without spread a t-interval would be certain
        (0.3, (3.0, 3.1, 2.9), True, "no claim"),
        (2.0, (3.0, 3.1), True, "too few seeds"),
        (NAN, (), True, "–"),
        (2.0, (-3.0, -3.1, -2.9), False, "no target"),
    ],
)
def test_a_proxy_is_judged_by_signs(gain: float, gains: tuple[float, ...], target: bool, word: str) -> None:
    found = line([50.0], 90.0, gain, gains, target)
    assert verdict(found, "proxy", 0.5) == word
    assert verdict(found, "smoke", 0.5) == "runs"


WHERE = {"table": "Table1", "dataset": "FMNIST", "metric": "global_test_acc_pct"}


@pytest.fixture
def item(tmp_path: Path, write_run: WriteRun) -> Reproduction:
    """FedMR's Table 1, FMNIST P5C2: FedAvg prints 67.29, FedMR 75.51; ours are 60 and 62, 70 and 71."""
    cells: list[dict[str, Any]] = []
    for row, scores in {"FedAvg": (0.60, 0.62), "FedMR": (0.70, 0.71)}.items():
        names = [
            write_run(f"{row}-{seed}", [0.2, score, score - 0.1], seed=seed, method=row.lower()).name
            for seed, score in enumerate(scores)
        ]
        printed = {**WHERE, "split": "P5C2", "method": row}
        cells.append({"row": row, "column": "FMNIST P5C2", "printed": printed, "runs": names})
    about = {"paper": "fedmr", "name": "table1", "measure": "accuracy_best", "margin": 0.5, "note": "<b>"}
    return written_item(tmp_path, cells, left_out=["MOON, x: missing: method moon"], **about)


def changed(item: Reproduction, **about: Any) -> tuple[Reproduction, Runs]:
    found = item._replace(about={**item.about, **about})
    return found, load_runs(run_folders(found))


def rows_of(item: Reproduction, runs: Runs) -> list[dict[str, str]]:
    table = paper_table(item, runs)
    return [dict(zip(table.titles, row, strict=True)) for row in table.rows]


def test_a_cell_is_the_mean_of_its_seeds_beside_the_print(item: Reproduction) -> None:
    """Of 60 and 62 half the 90 % interval is t(1) · √2 / √2 = 6.314."""
    runs = load_runs(run_folders(item))
    fedavg, fedmr = result_lines(item, runs)
    assert fedavg.ours == pytest.approx([60.0, 62.0])
    assert fedmr.gains == pytest.approx([10.0, 9.0])
    assert fedmr.printed_gain == pytest.approx(fedmr.printed - 67.29)
    assert rows_of(item, runs)[0] == {
        "Method": "FedAvg",
        "Column": "FMNIST P5C2",
        "Paper": "67.29",
        "Ours": "61.00",
        "Seeds": "2",
        "Δ": "−6.29",
        "90 % interval of Δ": "−12.60 to +0.02",
        "Verdict": "too few seeds",
    }
    table = paper_table(*changed(item, scale="proxy"))
    assert "Δ" not in table.titles
    assert table.rows[1][-2:] == ["+9.50", "too few seeds"]


def test_an_average_needs_every_column_of_a_seed_and_says_if_it_is_of_a_part(item: Reproduction) -> None:
    second = [{**cell, "column": "FMNIST P10C2", "runs": cell["runs"][:1]} for cell in item.about["cells"]]
    average = {"column": "avg", "of": ["FMNIST P5C2", "FMNIST P10C2"], "printed": {**WHERE, "split": "avg"}}
    lines = result_lines(*changed(item, cells=[*item.about["cells"], *second], averages=[average]))
    found = {(one.row, one.column): one for one in lines}
    assert (found["FedAvg", "avg"].ours, found["FedAvg", "avg"].seeds) == (pytest.approx([60.0]), [0])
    assert found["FedMR", "avg"].printed == 83.45
    part = changed(item, averages=[{**average, "of": ["FMNIST P5C2"], "whole": 5}])
    row = next(row for row in rows_of(*part) if row["Column"].startswith("avg"))
    assert (row["Column"], row["Ours"]) == ("avg of 1 of 5 columns", "61.00")
    assert row["Paper"] == "67.29", "of the columns that ran, not of the whole printed average"
    assert result_lines(*part)[-1].printed_gain == pytest.approx(75.51 - 67.29)


Scores = Mapping[int, tuple[float, float]]  # seed → accuracy of the global model, of personal ones


@pytest.fixture
def tuned(tmp_path: Path, write_run: WriteRun) -> Any:
    """Writes a table of one cell whose settings have these scores."""

    def write(measure: str, **settings: Scores) -> tuple[Reproduction, Runs]:
        tried = []
        for name, scores in settings.items():
            runs = [
                write_run(f"{name}-{seed}", [whole], personal=[own], seed=seed).name
                for seed, (whole, own) in scores.items()
            ]
            tried.append({"setting": name, "runs": runs})
        runs = [run for one in tried for run in one["runs"]]
        cell = {"row": "FedAvg", "column": "c", "printed": {}, "runs": runs, "settings": tried}
        return changed(written_item(tmp_path, [cell], measure=measure, margin=2.0))

    return write


def test_of_several_settings_the_best_by_the_mean_over_its_seeds_counts(tuned: Any) -> None:
    """Another setting has the best single run (74), a third none yet."""
    default: Scores = {0: (0.70, 0.5), 1: (0.71, 0.5)}
    item, runs = tuned("accuracy_last", wild={0: (0.74, 0.5), 1: (0.60, 0.5)}, usual=default, untried={})
    assert result_lines(item, runs)[0].ours == pytest.approx([70.0, 71.0])
    assert rows_of(item, runs)[0]["Best setting"] == "usual (others: 67.00, not run)"
    down, up = ({seed: (s / 10, 0.5) for seed, s in enumerate(order)} for order in ((3, 2, 1), (1, 2, 3)))
    item, runs = tuned("accuracy_last", down=down, up=up)
    assert best_setting(item, item.about["cells"][0], runs) == "down", "the first of equals"


@pytest.mark.parametrize(
    ("a", "b", "best"),
    [
        ({0: 0.80, 1: 0.70, 2: 0.72}, {0: 0.78}, "a"),  # b has only the seed that is easy for all
        ({0: 0.80, 1: 0.90, 2: 0.90}, {0: 0.81}, "a"),  # one seed does not choose
        ({0: 0.9}, {1: 0.7, 2: 0.7}, "b"),  # without a common seed the one with most of them
    ],
)
def test_one_seed_chooses_no_setting(a: dict[int, float], b: dict[int, float], best: str, tuned: Any) -> None:
    of_a, of_b = ({seed: (score, 0.5) for seed, score in one.items()} for one in (a, b))
    item, runs = tuned("accuracy_last", a=of_a, b=of_b)
    assert best_setting(item, item.about["cells"][0], runs) == best
    assert rows_of(item, runs)[0]["Best setting"].endswith("(others: fewer seeds)")


@pytest.mark.parametrize(
    ("left_out", "word", "claimed"),
    [
        ([], "settings missing", "settings missing: not all settings of FedAvg were run"),
        (["FedAvg, c, b: diverged: a value is not finite"], "not printed", "holds"),
    ],
)
def test_a_best_needs_all_of_its_settings(left_out: list[str], word: str, claimed: str, tuned: Any) -> None:
    item, _ = tuned("accuracy_last", a={0: (0.80, 0.5), 1: (0.90, 0.5), 2: (0.90, 0.5)}, b={})
    claim = {"text": "it is good", "terms": [[1.0, "FedAvg", "c"]]}
    item, runs = changed(item, left_out=left_out, claims=[claim])
    assert verdict(result_lines(item, runs)[0], "full", 1.0) == word
    (result,) = claim_results(item, runs)
    assert (result.verdict, result.chosen) == (claimed, "FedAvg is the best of 2 settings")


def test_another_measure_and_another_row_of_the_same_runs_follow_the_choice_of_the_cell(tuned: Any) -> None:
    """A claim that compares two accuracies of a method must not take each of them from another run."""
    item, runs = tuned("personal_last", a={0: (0.80, 0.70)}, b={0: (0.78, 0.79)})
    key = ("FedAvg", "c")
    assert cell_values(item, key, runs) == pytest.approx({0: 79.0})
    assert cell_values(item, key, runs, "accuracy_last") == pytest.approx({0: 78.0})
    again = {**item.about["cells"][0], "row": "FedAvg (global)", "measure": "accuracy_last"}
    both, place = changed(item, cells=[*item.about["cells"], again])[0], ("FedAvg (global)", "c")
    assert cell_values(both, place, runs) == pytest.approx({0: 80.0})
    again["chosen_as"] = "FedAvg"
    assert cell_values(both, place, runs) == pytest.approx({0: 78.0})


@pytest.mark.parametrize("about", [{}, {"search": {"grid": {}}}], ids=["a table", "a tuned table"])
def test_strays_are_left_out_of_cells(tmp_path: Path, write_run: WriteRun, about: dict[str, object]) -> None:
    names = []
    for seed, digest in enumerate((ONE, OTHER, ONE, ONE)):
        code = [{"role": "method", "reference": "./own.py:own", "files": {"own.py": digest}}]
        names.append(write_run(f"s{seed}", [0.5] * 8, method="./own.py:own", seed=seed, code=code).name)
    min((tmp_path / "s2" / "metrics").iterdir()).unlink()
    item = written_item(tmp_path, [{"row": "Own", "column": "a", "printed": {}, "runs": names}], **about)
    runs = load_runs(run_folders(item))
    assert strays(item, runs) == {
        "s1": "not comparable: its own code differs (own.py c3d4e5f6… / a1b2c3d4…); the second value is that "
        "of seed 0",
        "s2": "not comparable: its rows are not as the run wrote them (metrics: no part has the rows of "
        "rounds 1-5; put them back)",
    }
    assert paper_table(item, runs).titles[-1] == "Runs left out"


# A table that other people printed: one source judges, others are shown, and its defects stand beside it


@pytest.fixture
def published(tmp_path: Path, write_run: WriteRun) -> Reproduction:
    """FedAvg at 87.5, 88.0, 88.5 where Flower prints 88.09 ± 0.29 and FLBenchmarkUI 86.88 ± 0.38."""
    names = [
        write_run(f"FedAvg-{seed}", [0.2, score], seed=seed).name
        for seed, score in enumerate((0.875, 0.88, 0.885))
    ]
    where = {"dataset": "FMNIST Dir0.5", "method": "FedAvg", "metric": "aggregation_accuracy"}
    cell = {
        "row": "FedAvg",
        "column": "Dir 0.5",
        "printed": {"paper": "flower-niid_bench", "table": "README", **where},
        "witnesses": [{"paper": "flbenchmarkui", "table": "index.html", **where}],
        "runs": names,
    }
    said = {"source": "a README", "protocol": "best of 50", "needs": "one core", "cost": "an hour"}
    said |= {"defects": ["a printed number is a misprint"], "absent": {"FedGF": "raffed has no such method"}}
    said |= {"lacks": [], "may_differ": ["local.lr"], "repeats": {"flower-niid_bench": 3}}
    about = {"paper": "checker", "name": "niid-fmnist", "measure": "accuracy_best", "published": said}
    return written_item(tmp_path, [cell], **about)


def test_the_first_source_judges_and_the_others_and_the_defects_are_shown(published: Reproduction) -> None:
    """The difference to 88.09 is −0.09, its error √((0.5² + 0.29²)/3) = 0.3337, with 3.21 degrees of freedom.

    The 90 % interval is −0.09 ± 2.29 · 0.3337.
    """
    item, runs = changed(published)
    assert result_lines(item, runs)[0].told == PrintedNumber(88.09, 0.29, 3)
    (row,) = rows_of(item, runs)
    assert (row["Paper"], row["Paper's s (runs)"], row["Other sources"]) == ("88.09", "0.29 (3)", "86.88")
    assert (row["Δ"], row["90 % interval of Δ"], row["Verdict"]) == ("−0.09", "−0.85 to +0.67", "agrees")
    assert rows_of(*changed(item, margin=0.8))[0]["Verdict"] == "too few seeds"
    text = item_markdown(item, runs)
    for said in ("a printed number is a misprint", "raffed has no such method", "agrees", "a README"):
        assert said in text


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([1.0, 1.1], "too few seeds"),
        ([1.0, 1.1, 0.9], "holds"),
        ([-1.0, -1.1, -0.9], "fails"),
        ([0.5, 0.5, 0.5], "not separated"),  # without any spread nothing is known of it
        ([60.0, 45.0, math.inf], "not separated"),
    ],
)
def test_a_claim_holds_or_fails_only_where_its_whole_interval_does(values: list[float], word: str) -> None:
    assert ClaimResult("", values).verdict == word
    given = "holds" if word == "holds" else "says nothing: its premise does not hold"
    assert ClaimResult("", [1.0, 1.1, 0.9], given=values).verdict == given


@pytest.mark.parametrize(
    ("values", "within", "word"),
    [
        ([0.0], 0.0, "holds"),
        ([0.0, 1e-9], 0.0, "fails"),
        ([-0.1, -0.1, -0.1], 0.3, "holds"),
        ([-0.4, -0.4, -0.4], 0.3, "fails"),
        ([0.0, 0.0, 0.3], 0.3, "not separated"),
    ],
)
def test_what_is_near_holds_where_the_whole_interval_is(
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
    told = {row["claim"]: row for row in verdict_rows(item, runs)}
    assert [told["a above b"][name] for name in ("seeds", "runs")] == [[0, 1], ["a-0", "a-1", "b-0", "b-1"]]
    assert told["half"]["measure"] == "accuracy_last; accuracy_best"
    table = claim_table(item, runs)
    assert table.rows[0] == ["a above b", "+20.00", "2", "too few seeds"]
    smoke = claim_table(item._replace(about={**item.about, "scale": "smoke"}), runs)
    assert [(row[0], row[-1]) for row in smoke.rows] == [("a is a", "runs, and the bits are equal")]

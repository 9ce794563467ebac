"""Paper beside ours: which numbers agree, in which order methods stand, and that a proxy is never
compared by its level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.equivalence import PrintedNumber
from raffed.analysis.report import find_items, write_loaded
from raffed.analysis.reproduction.cell_values import cell_values
from raffed.analysis.reproduction.claims import claim_results
from raffed.analysis.reproduction.item_runs import Reproduction, best_setting, load_item, run_folders
from raffed.analysis.reproduction.numbers import shown
from raffed.analysis.reproduction.verdicts import Line, paper_table, result_lines, verdict

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]

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
        (line([80.4], 80.0), "too few seeds"),
        (line([80.0]), "not printed"),
        (line([79.9, 80.0, 80.1], 80.2), "agrees"),  # 90 % interval −0.2 ± 0.17
        (line([79.9, 80.0, 80.1], 80.4), "too few seeds"),
        (line([78.0, 80.0, 82.0], 83.0), "too few seeds"),  # 95 % interval −3 ± 4.97
        (line([79.9, 80.0, 80.1], 83.0), "differs"),  # 95 % interval −3 ± 0.25
        (line([79.4], 80.0, target=False), "no target"),
        (line([], 80.0, target=False), "not run"),
        (line([80.0], target=False), "not printed"),
    ],
)
def test_at_full_scale_a_number_agrees_if_its_whole_interval_is_within_the_margin(
    found: Line, word: str
) -> None:
    assert verdict(found, "full", 0.5) == word


@pytest.mark.parametrize(
    ("gain", "gains", "word"),
    [
        (2.0, (3.0, 3.1, 2.9), "same order"),
        (2.0, (-3.0, -3.1, -2.9), "opposite order"),
        (-2.0, (-3.0, -3.1, -2.9), "same order"),
        (2.0, (-1.0, 0.0, 1.2), "not separated"),
        (2.0, (3.0, 3.0, 3.0), "not separated"),  # without spread, a t-interval would be certain of anything
        (0.3, (3.0, 3.1, 2.9), "no claim"),
        (2.0, (3.0,), "too few seeds"),
        (2.0, (3.0, 3.1), "too few seeds"),
        (NAN, (), "–"),
    ],
)
def test_a_proxy_is_judged_by_the_sign_of_its_gain_over_the_baseline(
    gain: float, gains: tuple[float, ...], word: str
) -> None:
    assert verdict(line([50.0], 90.0, gain, gains), "proxy", 0.5) == word
    assert verdict(line([50.0], 90.0, gain, gains), "smoke", 0.5) == "runs"


@pytest.mark.parametrize(
    ("gain", "gains", "word"), [(2.0, (-3.0, -3.1, -2.9), "no target"), (NAN, (), "–"), (2.0, (), "–")]
)
def test_what_is_no_target_is_in_no_order_either(gain: float, gains: tuple[float, ...], word: str) -> None:
    found = line([50.0], 90.0, gain, gains, target=False)
    assert verdict(found, "proxy", 0.5) == word
    assert verdict(found, "smoke", 0.5) == "runs"


@pytest.fixture
def item_file(tmp_path: Path, write_run: WriteRun) -> Path:
    """FedMR's Table 1, FMNIST P5C2: FedAvg prints 67.29, FedMR 76.56... ours 60/62 and 70/71 over two
    seeds.
    """
    cells: list[dict[str, Any]] = []
    for row, scores in {"FedAvg": (0.60, 0.62), "FedMR": (0.70, 0.71)}.items():
        names = []
        for seed, score in enumerate(scores):
            names.append(
                write_run(f"{row}-{seed}", [0.2, score, score - 0.1], seed=seed, method=row.lower()).name
            )
        where = {
            "table": "Table1",
            "dataset": "FMNIST",
            "split": "P5C2",
            "method": row,
            "metric": "global_test_acc_pct",
        }
        cells.append({"row": row, "column": "FMNIST P5C2", "printed": where, "runs": names})
    item = written_item(
        tmp_path,
        cells,
        paper="fedmr",
        name="table1",
        measure="accuracy_best",
        margin=0.5,
        note="<b>",
        left_out=["MOON, x: missing: method moon"],
    )
    return item.folder / "item.json"


def test_a_cell_is_the_mean_of_its_seeds_best_rounds_and_gains_are_paired(item_file: Path) -> None:
    item = load_item(item_file)
    runs = load_runs(run_folders(item))
    fedavg, fedmr = result_lines(item, runs)
    assert fedavg.ours == pytest.approx([60.0, 62.0])
    assert fedmr.gains == pytest.approx([10.0, 9.0])
    assert fedavg.printed == 67.29
    assert fedmr.printed_gain == pytest.approx(fedmr.printed - 67.29)


def test_the_sheet_has_paper_ours_interval_seeds_difference_and_verdict(item_file: Path) -> None:
    item = load_item(item_file)
    table = paper_table(item, load_runs(run_folders(item)))
    titles = ["Method", "Column", "Paper", "Ours", "Seeds", "Δ", "90 % interval of Δ", "Verdict"]
    assert list(table.titles) == titles
    # Of 60 and 62 half the interval is t(1) · √2 / √2 = 6.314
    wanted = ["67.29", "61.00", "2", "−6.29", "−12.60 to +0.02", "too few seeds"]
    assert table.rows[0] == ["FedAvg", "FMNIST P5C2", *wanted]


def test_a_proxy_s_sheet_shows_differences_to_the_baseline_and_no_level(item_file: Path) -> None:
    item = load_item(item_file)
    item = item._replace(about={**item.about, "scale": "proxy"})
    table = paper_table(item, load_runs(run_folders(item)))
    assert "Δ" not in table.titles
    assert table.rows[1][-2:] == ["+9.50", "too few seeds"]


def test_of_several_settings_the_best_by_the_mean_over_its_seeds_counts(
    item_file: Path, write_run: WriteRun
) -> None:
    """FedMR scores 70 and 71 with its default; another setting has the best single run (74), a third none
    yet.
    """
    about = json.loads(item_file.read_text())
    scores = enumerate((0.74, 0.60))
    wild = [
        write_run(f"wild-{seed}", [0.2, 0.3, score], seed=seed, method="fedmr").name for seed, score in scores
    ]
    fedavg, fedmr = about["cells"]
    fedavg["settings"] = [{"setting": "defaults", "runs": fedavg["runs"]}]
    tried = {"mu1 = 9": wild, "mu1 = 0.1": fedmr["runs"], "mu1 = 7": []}
    fedmr["settings"] = [{"setting": setting, "runs": names} for setting, names in tried.items()]
    fedmr["runs"] = [*wild, *fedmr["runs"]]
    item_file.write_text(json.dumps(about))
    item = load_item(item_file)
    runs = load_runs(run_folders(item))
    assert result_lines(item, runs)[1].ours == pytest.approx([70.0, 71.0])
    table = paper_table(item, runs)
    at = table.titles.index("Best setting")
    assert [line[at] for line in table.rows] == ["defaults", "mu1 = 0.1 (others: 67.00, not run)"]


def scored(write_run: WriteRun, name: str, by_seed: dict[int, tuple[float, float]]) -> dict[str, Any]:
    """A setting whose runs have an aggregation and a personalization accuracy by seed."""
    runs = [
        write_run(f"{name}-{seed}", [a], personal=[b], seed=seed).name for seed, (a, b) in by_seed.items()
    ]
    return {"setting": name, "runs": runs}


def table_of(folder: Path, measure: str, *settings: dict[str, Any]) -> Reproduction:
    cell = {
        "row": "FedAvg",
        "column": "c",
        "printed": {},
        "runs": [run for one in settings for run in one["runs"]],
        "settings": list(settings),
    }
    return written_item(folder, [cell], measure=measure, margin=2.0)


def test_settings_are_compared_over_the_seeds_that_all_of_them_have(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """One setting has only the seed that is easy for all: 78 there, where the other has 80."""
    one = scored(write_run, "a", {0: (0.80, 0.5), 1: (0.70, 0.5), 2: (0.72, 0.5)})
    other = scored(write_run, "b", {0: (0.78, 0.5)})
    item = table_of(tmp_path, "accuracy_last", one, other)
    runs = load_runs(run_folders(item))
    assert result_lines(item, runs)[0].ours == pytest.approx([80.0, 70.0, 72.0])
    row = paper_table(item, runs).rows[0]
    assert "a (others: fewer seeds)" in row
    assert "settings missing" in row


def test_one_seed_of_a_setting_does_not_choose_it(tmp_path: Path, write_run: WriteRun) -> None:
    """On the only seed that both have, b is one point better; a has 86.67 over its three seeds."""
    one = scored(write_run, "a", {0: (0.80, 0.5), 1: (0.90, 0.5), 2: (0.90, 0.5)})
    other = scored(write_run, "b", {0: (0.81, 0.5)})
    item = table_of(tmp_path, "accuracy_last", one, other)
    assert best_setting(item, item.about["cells"][0], load_runs(run_folders(item))) == "a"


@pytest.mark.parametrize(
    ("left_out", "word"),
    [([], "settings missing"), (["FedAvg, c, b: diverged: a value is not finite"], "not printed")],
)
def test_a_best_of_settings_is_judged_once_all_of_them_were_tried(
    left_out: list[str], word: str, tmp_path: Path, write_run: WriteRun
) -> None:
    one = scored(write_run, "a", {0: (0.80, 0.5), 1: (0.90, 0.5), 2: (0.90, 0.5)})
    claim = {"text": "it is good", "terms": [[1.0, "FedAvg", "c"]]}
    item = table_of(tmp_path, "accuracy_last", one, {"setting": "b", "runs": []})
    item = item._replace(about={**item.about, "left_out": left_out, "claims": [claim]})
    runs = load_runs(run_folders(item))
    assert verdict(result_lines(item, runs)[0], "full", 1.0) == word
    (result,) = claim_results(item, runs)
    assert result.verdict == (
        "holds" if left_out else "settings missing: not all settings of FedAvg were run"
    )
    assert result.chosen == "FedAvg is the best of 2 settings"


def test_without_a_common_seed_the_setting_with_most_of_them_counts(
    tmp_path: Path, write_run: WriteRun
) -> None:
    item = table_of(
        tmp_path,
        "accuracy_last",
        scored(write_run, "a", {0: (0.9, 0.5)}),
        scored(write_run, "b", {1: (0.7, 0.5), 2: (0.7, 0.5)}),
    )
    assert best_setting(item, item.about["cells"][0], load_runs(run_folders(item))) == "b"


def test_another_measure_of_a_cell_is_read_from_the_runs_that_the_cell_s_own_chose(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """A claim that compares two accuracies of a method must not take each of them from another run."""
    settings = scored(write_run, "a", {0: (0.80, 0.70)}), scored(write_run, "b", {0: (0.78, 0.79)})
    item = table_of(tmp_path, "personal_last", *settings)
    runs = load_runs(run_folders(item))
    key = ("FedAvg", "c")
    assert cell_values(item, key, runs) == pytest.approx({0: 79.0})
    assert cell_values(item, key, runs, "accuracy_last") == pytest.approx({0: 78.0})


def test_a_row_that_reads_the_same_runs_in_another_way_takes_the_other_row_s_choice(
    tmp_path: Path, write_run: WriteRun
) -> None:
    settings = [scored(write_run, "a", {0: (0.80, 0.70)}), scored(write_run, "b", {0: (0.78, 0.79)})]
    item = table_of(tmp_path, "personal_last", *settings)
    again = {**item.about["cells"][0], "row": "FedAvg (global)", "measure": "accuracy_last"}
    both = item._replace(about={**item.about, "cells": [*item.about["cells"], again]})
    runs, place = load_runs(run_folders(item)), ("FedAvg (global)", "c")
    assert cell_values(both, place, runs) == pytest.approx({0: 80.0})
    again["chosen_as"] = "FedAvg"
    assert cell_values(both, place, runs) == pytest.approx({0: 78.0})


def test_a_cell_that_never_ran_has_no_best_setting(item_file: Path) -> None:
    about = json.loads(item_file.read_text())
    about["cells"][1] |= {
        "runs": [],
        "settings": [{"setting": "a", "runs": []}, {"setting": "b", "runs": []}],
    }
    item_file.write_text(json.dumps(about))
    item = load_item(item_file)
    table = paper_table(item, load_runs(run_folders(item)))
    assert table.rows[1][table.titles.index("Best setting")] == "–"


def test_rounds_to_the_baseline_s_best_count_from_one_and_may_never_come(
    tmp_path: Path, write_run: WriteRun
) -> None:
    runs = {
        "FedAvg": [0.1, 0.5, 0.4],
        "Quick": [0.6, 0.7, 0.7],
        "Late": [0.1, 0.2, 0.5],
        "Never": [0.1, 0.2, 0.49],
    }
    names = {row: write_run(row, scores, method=row.lower()).name for row, scores in runs.items()}
    cells = [{"row": row, "column": "c", "printed": {}, "runs": [name]} for row, name in names.items()]
    item = written_item(tmp_path, cells, measure="rounds_to_baseline", unit="rounds")
    found = {one.row: one.ours for one in result_lines(item, load_runs(run_folders(item)))}
    assert found == {"FedAvg": [3.0], "Quick": [1.0], "Late": [3.0], "Never": [math.inf]}
    table = paper_table(item, load_runs(run_folders(item)))
    assert table.rows[3][list(table.titles).index("Ours")] == "never"


def test_the_average_needs_every_column_of_a_seed(item_file: Path) -> None:
    about = json.loads(item_file.read_text())
    second = [{**cell, "column": "FMNIST P10C2", "runs": cell["runs"][:1]} for cell in about["cells"]]
    where = {"table": "Table1", "dataset": "FMNIST", "split": "avg", "metric": "global_test_acc_pct"}
    about["cells"] += second
    about["averages"] = [{"column": "avg", "of": ["FMNIST P5C2", "FMNIST P10C2"], "printed": where}]
    item_file.write_text(json.dumps(about))
    item = load_item(item_file)
    found = {(one.row, one.column): one for one in result_lines(item, load_runs(run_folders(item)))}
    assert found["FedAvg", "avg"].ours == pytest.approx([60.0])
    assert found["FedMR", "avg"].printed == 83.45


def test_an_average_of_a_part_of_its_columns_says_so_and_one_without_a_printed_number_compares_with_none(
    item_file: Path,
) -> None:
    about = json.loads(item_file.read_text())
    about["averages"] = [{"column": "avg", "of": ["FMNIST P5C2"], "whole": 5, "printed": {}}]
    item_file.write_text(json.dumps(about))
    item = load_item(item_file)
    lines = {
        line[1]: line for line in paper_table(item, load_runs(run_folders(item))).rows if line[0] == "FedAvg"
    }
    assert lines["avg of 1 of 5 columns"][2:4] == ["–", "61.00"]
    assert list(lines) == ["FMNIST P5C2", "avg of 1 of 5 columns"]


def test_a_cell_that_is_no_target_says_so_in_its_own_line_and_in_its_average_s(
    item_file: Path, tmp_path: Path
) -> None:
    """A file without the word, as all were before it, is of targets."""
    about = json.loads(item_file.read_text())
    where = {"table": "Table1", "dataset": "FMNIST", "split": "avg", "metric": "global_test_acc_pct"}
    about["averages"] = [{"column": "avg", "of": ["FMNIST P5C2"], "whole": 1, "printed": where}]
    about["cells"][1]["target"] = False
    item_file.write_text(json.dumps(about))
    (item,) = find_items([item_file.parent])
    runs = load_runs(run_folders(item))
    assert [(one.row, one.column, one.target) for one in result_lines(item, runs)] == [
        ("FedAvg", "FMNIST P5C2", True),
        ("FedMR", "FMNIST P5C2", False),
        ("FedAvg", "avg", True),
        ("FedMR", "avg", False),
    ]
    assert [one[-1] for one in paper_table(item, runs).rows] == [
        "too few seeds",
        "no target",
        "differs",
        "no target",
    ]
    assert "2 no target" in write_loaded(runs, tmp_path / "report", [item]).read_text()


def test_a_report_shows_the_paper_s_table_and_what_was_left_out(item_file: Path, tmp_path: Path) -> None:
    (item,) = find_items([item_file.parent])
    text = write_loaded(load_runs(run_folders(item)), tmp_path / "report", [item]).read_text()
    assert "67.29" in text
    assert "missing: method moon" in text
    assert "&lt;b&gt;" in text


def test_a_gain_in_rounds_that_never_come_is_not_separated_and_is_shown_with_its_seeds() -> None:
    """With one of three seeds the method never reaches the baseline's accuracy."""
    gains = [60.0, 45.0, math.inf]
    line = Line("FedProx", "c", PrintedNumber(10.0), gains, 5.0, gains)
    assert verdict(line, "proxy", 1.0) == "not separated"
    assert shown(gains, 0) == "never in 1 of 3"
    assert shown([math.inf, math.inf], 0) == "never"
    alike = Line("FedProx", "c", PrintedNumber(10.0), [60.0] * 3, 5.0, [60.0] * 3, counted=True)
    assert verdict(alike, "proxy", 1.0) == "same order"

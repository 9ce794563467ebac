"""The checker's rule: a number is judged by a band that has the spread of the print and of our own runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.bands import Room, band_table, published_tables
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.verdicts import paper_table, result_lines, verdict
from raffed.analysis.sections import paper_section

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([], "not run"),
        ([80.0, 80.0], "too few seeds"),
        ([81.0] * 3, "agrees"),  # b = max(1, 2 √(0.09/3)) = 1
        ([81.5] * 3, "open"),
        ([82.5] * 3, "differs"),
        ([77.5] * 3, "differs"),
    ],
)
def test_a_number_agrees_within_the_band_is_open_up_to_twice_and_differs_beyond(
    ours: list[float], word: str
) -> None:
    assert Room(80.0, 80.0, 0.3, 3, 1.0).verdict(ours) == word


def test_the_band_grows_with_both_spreads() -> None:
    """s = 3, n = 3 and t = 1, k = 3: 2 √(9/3 + 1/3) = 3.65; at s = t = 0 it is b₀."""
    assert Room(80.0, 80.0, 3.0, 3, 1.0).width([79.0, 80.0, 81.0]) == pytest.approx(2 * math.sqrt(10 / 3))
    assert Room(80.0, 80.0, 0.0, 3, 1.0).width([80.0] * 3) == 1.0


def test_the_range_of_several_sources_is_widened_by_the_assumed_noise() -> None:
    room = Room(47.8, 51.2, 0.5, 3, 1.0)
    assert [room.distance(value) for value in (49.0, 46.8, 52.2)] == [0.0, 0.0, 0.0]
    assert room.distance(45.8) == pytest.approx(-1.0)
    assert room.distance(53.2) == pytest.approx(1.0)


def place(method: str, paper: str = "flower-niid_bench", table: str = "README") -> dict[str, str]:
    where = {"paper": paper, "table": table, "dataset": "FMNIST Dir0.5"}
    return {**where, "method": method, "metric": "aggregation_accuracy"}


@pytest.fixture
def item(tmp_path: Path, write_run: WriteRun) -> Reproduction:
    """FedAvg at 87.5, 88.0, 88.5 where Flower prints 88.09 ± 0.29 and FLBenchmarkUI 86.88 ± 0.38."""
    names = [
        write_run(f"FedAvg-{seed}", [0.2, score], seed=seed).name
        for seed, score in enumerate((0.875, 0.88, 0.885))
    ]
    witness = place("FedAvg", "flbenchmarkui", "index.html")
    band: dict[str, Any] = {"least": 0.6, "repeats": 3, "spread": None, "witnesses": [witness]}
    fedavg = {"row": "FedAvg", "column": "Dir 0.5", "printed": place("FedAvg"), "runs": names, "band": band}
    published = {
        "source": "a README",
        "protocol": "best of 50",
        "needs": "one core",
        "cost": "an hour",
        "defects": ["a printed number is a misprint"],
        "absent": {"FedGF": "raffed has no such method"},
        "lacks": [],
        "may_differ": ["local.lr"],
    }
    return written_item(
        tmp_path,
        [fedavg],
        paper="checker",
        name="niid-fmnist",
        measure="accuracy_best",
        tolerance=0.5,
        published=published,
    )


def test_a_line_of_the_checker_is_judged_by_its_band_and_not_by_the_tolerance(item: Reproduction) -> None:
    (line,) = result_lines(item, load_runs(run_folders(item)))
    assert line.room == Room(86.88, 88.09, 0.38, 3, 0.6)
    assert verdict(line, "full", 0.0) == "agrees"
    assert verdict(line._replace(ours=[97.0] * 3), "full", 50.0) == "differs"


def test_the_report_shows_the_range_of_the_witnesses_the_band_and_the_verdict(item: Reproduction) -> None:
    """t = 0.5, so b = max(0.6, 2 √(0.38²/3 + 0.5²/3)) = 0.73."""
    table = band_table(item, load_runs(run_folders(item)))
    assert table is not None
    wanted = ["FedAvg", "Dir 0.5", "86.88 to 88.09", "0.38", "88.00", "0.50", "3", "+0.00", "0.73", "agrees"]
    assert list(table.rows[0]) == wanted


def test_defects_and_absent_rows_stand_beside_the_verdict(item: Reproduction) -> None:
    text = item_markdown(item, load_runs(run_folders(item)))
    for said in ("a printed number is a misprint", "raffed has no such method", "agrees", "a README"):
        assert said in text


def test_the_page_states_the_rule_by_which_it_judges(item: Reproduction) -> None:
    """A table with bands is judged by them, and one without by its tolerance; notes read as sentences."""
    about = dict(item.about) | {
        "note": "the rows are the same runs",
        "unit": "training_best: global model, %",
    }
    page = str(paper_section(item._replace(about=about), load_runs(run_folders(item))))
    assert "within a band around the printed one" in page
    assert "the tolerance (0.5)" not in page
    assert "<p>The rows are the same runs.</p>" in page.replace(' class="soft"', "")
    assert "training_best: global model, %." in page
    about["cells"] = [{name: value for name, value in about["cells"][0].items() if name != "band"}]
    page = str(paper_section(item._replace(about=about), load_runs(run_folders(item))))
    assert "within a band" not in page
    assert "the tolerance (0.5)" in page


def test_a_table_of_a_paper_has_no_such_tables(item: Reproduction) -> None:
    about = {name: value for name, value in item.about.items() if name != "published"}
    assert published_tables(item._replace(about=about), load_runs(run_folders(item))) == {}


@pytest.mark.parametrize(("declared", "left"), [(["local.lr"], ""), ([], "local.lr differs")])
def test_rows_may_differ_in_what_the_table_declares_and_in_nothing_else(
    item: Reproduction, write_run: WriteRun, declared: list[str], left: str
) -> None:
    """Two of three runs of a column and seed have one rate, and the third has another."""
    config = {"data": {"dataset": "digits", "split": "p10c2"}, "local": {"lr": 0.01}}
    same = [write_run(f"same-{row}", [0.2, 0.8], config=config).name for row in ("a", "b")]
    fast = {**config, "local": {"lr": 0.1}}
    other = write_run("SCAFFOLD-0", [0.2, 0.9], method="scaffold", config=fast).name
    cells = [
        {"row": row, "column": "Dir 0.5", "printed": {}, "runs": [name]}
        for row, name in zip(("FedAvg", "FedProx", "SCAFFOLD"), [*same, other], strict=True)
    ]
    published = {**item.about["published"], "may_differ": declared}
    mixed = item._replace(about={**item.about, "cells": cells, "published": published})
    table = paper_table(mixed, load_runs(run_folders(mixed)))
    assert left in str(table.rows[-1])
    assert ("not comparable" in str(table.rows[-1])) == bool(left)

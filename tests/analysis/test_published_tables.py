"""A table that other people printed: one source judges, others are shown, and its defects stand beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.equivalence import PrintedNumber
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.verdicts import paper_table, result_lines

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]


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
    cell: dict[str, Any] = {"row": "FedAvg", "column": "Dir 0.5", "printed": place("FedAvg"), "runs": names}
    fedavg = {**cell, "witnesses": [witness]}
    published = {
        "source": "a README",
        "protocol": "best of 50",
        "needs": "one core",
        "cost": "an hour",
        "defects": ["a printed number is a misprint"],
        "absent": {"FedGF": "raffed has no such method"},
        "lacks": [],
        "may_differ": ["local.lr"],
        "repeats": {"flower-niid_bench": 3},
    }
    return written_item(
        tmp_path,
        [fedavg],
        paper="checker",
        name="niid-fmnist",
        measure="accuracy_best",
        margin=1.0,
        published=published,
    )


def test_the_first_source_judges_and_the_others_are_shown(item: Reproduction) -> None:
    """The difference to 88.09 is −0.09, its error √((0.5² + 0.29²)/3) = 0.3337, with 3.21 degrees of freedom.

    The 90 % interval is −0.09 ± 2.29 · 0.3337.
    """
    (line,) = result_lines(item, load_runs(run_folders(item)))
    assert line.told == PrintedNumber(88.09, 0.29, 3)
    table = paper_table(item, load_runs(run_folders(item)))
    shown = dict(zip(table.titles, table.rows[0], strict=True))
    assert (shown["Paper"], shown["Paper's s (runs)"], shown["Other sources"]) == (
        "88.09",
        "0.29 (3)",
        "86.88",
    )
    assert (shown["Δ"], shown["90 % interval of Δ"]) == ("−0.09", "−0.85 to +0.67")
    assert shown["Verdict"] == "agrees"
    narrow = item._replace(about={**item.about, "margin": 0.8})
    assert paper_table(narrow, load_runs(run_folders(item))).rows[0][-1] == "too few seeds"


def test_defects_and_absent_rows_stand_beside_the_verdict(item: Reproduction) -> None:
    text = item_markdown(item, load_runs(run_folders(item)))
    for said in ("a printed number is a misprint", "raffed has no such method", "agrees", "a README"):
        assert said in text


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

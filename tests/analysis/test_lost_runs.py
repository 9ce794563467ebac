"""Runs with which training diverged are a result of a table: their number is said, and the mean over the
seeds that are left, which is the mean of the lucky ones, has no verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.figures.printed_plots import LOOKS
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.claims import claim_results
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.matrix import matrix_of
from raffed.analysis.reproduction.printed_view import printed_view
from raffed.analysis.reproduction.verdict_marks import MARKS
from raffed.analysis.reproduction.verdicts import paper_table
from raffed.analysis.runs.load import Runs

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
NAN = "client 3: a value is not finite; try clip_norm"
PRINTED = {
    "paper": "flower-niid_bench",
    "table": "README",
    "dataset": "FMNIST Dir0.5",
    "metric": "aggregation_accuracy",
}
LEFT = {"FedAvg": 3, "FedNova": 2, "SCAFFOLD": 0}  # seeds of each row that are left of three


@pytest.fixture
def lost(tmp_path: Path, write_run: WriteRun) -> tuple[Reproduction, Runs]:
    """Three rows with the printed numbers 88.09, 88.22 and 88.44, missed by hundredths."""
    cells = []
    for row, printed in (("FedAvg", 0.8809), ("FedNova", 0.8822), ("SCAFFOLD", 0.8844)):
        names = [
            write_run(f"{row}{seed}", [printed + seed / 10_000], method=row.lower(), seed=seed).name
            for seed in range(LEFT[row])
        ]
        cell = {"row": row, "column": "Dir 0.5", "printed": {**PRINTED, "method": row}, "runs": names}
        cells.append(cell)
    told = [f"{row}, Dir 0.5: diverged: seed {seed}: {NAN}" for row in LEFT for seed in range(LEFT[row], 3)]
    above = {"text": "FedNova is above", "terms": [[1.0, "FedNova", "Dir 0.5"], [-1.0, "FedAvg", "Dir 0.5"]]}
    item = written_item(tmp_path, cells, paper="checker", left_out=told, claims=[above])
    return item, load_runs(run_folders(item))


def test_a_mean_of_the_seeds_that_are_left_has_no_verdict(lost: tuple[Reproduction, Runs]) -> None:
    item, runs = lost
    table = paper_table(item, runs)
    places = [table.titles.index(name) for name in ("Seeds", "Verdict")]
    assert {line[0]: tuple(line[at] for at in places) for line in table.rows} == {
        "FedAvg": ("3", "agrees"),
        "FedNova": ("2 of 3, 1 diverged", "diverged"),
        "SCAFFOLD": ("0 of 3, 3 diverged", "diverged"),
    }
    assert claim_results(item, runs)[0].verdict == "diverged: training diverged in some runs of FedNova"


def test_every_verdict_that_stands_beside_a_number_can_be_drawn(lost: tuple[Reproduction, Runs]) -> None:
    """A dot for each seed that is left, also of a row without a verdict."""
    item, runs = lost
    assert len(printed_view(item, runs).figures) == 1
    with_numbers = {mark.css for word, mark in MARKS.items() if mark.css != "absent"}
    assert with_numbers <= {*LOOKS}


def test_the_table_says_how_many_diverged_and_why(lost: tuple[Reproduction, Runs]) -> None:
    item, runs = lost
    matrix = matrix_of(item, runs)
    assert matrix.counts == {"agrees": 1, "diverged": 2}
    assert sorted(matrix.notes.values()) == [
        "1 of its 3 runs diverged, seed 2: client 3: a value is not finite (1 cell)",
        "3 of its 3 runs diverged, seed 0: client 3: a value is not finite (1 cell)",
    ]
    text = item_markdown(item, runs)
    assert "1 of its 3 runs diverged" in text
    assert "2 of 3, 1 diverged" in text

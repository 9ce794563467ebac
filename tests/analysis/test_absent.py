"""A cell without a number says which of three things is so: it was not run, its runs may not be compared with
the others, or they do not have the measure. The page, Markdown, LaTeX and the terminal say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.claims import claim_counts, claim_results
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.matrix import Matrix, matrix_of
from raffed.analysis.runs.load import Runs

from raffed.results.runfile import sealed
from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
Written = Callable[..., tuple[Reproduction, Runs]]
ONE, OTHER = "a1b2c3d4" * 8, "c3d4e5f6" * 8
REASON = "not comparable: the partition differs (c3d4e5f6… / a1b2c3d4…); the second value is that of FedAvg"


@pytest.fixture
def written(tmp_path: Path, write_run: WriteRun) -> Written:
    """A table of three rows in one column, at full scale. Every row has two seeds, with 50 and 60.

    `apart` names the runs, such as "FedProx0", whose partition is another.
    """

    def make(apart: Sequence[str], **more: Any) -> tuple[Reproduction, Runs]:
        cells = []
        for row in ("FedAvg", "FedProx", "MAP"):
            names = [
                write_run(
                    f"{row}{seed}",
                    [0.5 + 0.1 * seed],
                    method=row.lower(),
                    seed=seed,
                    partition_sha256=OTHER if f"{row}{seed}" in apart else ONE,
                ).name
                for seed in (0, 1)
            ]
            cells.append({"row": row, "column": "iid", "printed": {}, "runs": names})
        item = written_item(tmp_path, cells, **more)
        return item, load_runs(run_folders(item))

    return make


def words(matrix: Matrix) -> Mapping[str, str]:
    return {row: cells[0].word for row, cells in zip(matrix.rows, matrix.cells, strict=True)}


def test_a_cell_whose_runs_are_all_of_another_partition_is_not_comparable_and_not_unrun(
    written: Written,
) -> None:
    matrix = matrix_of(*written(["FedProx0", "FedProx1"]))
    assert words(matrix) == {"FedAvg": "not printed", "FedProx": "not comparable", "MAP": "not printed"}
    assert matrix.counts == {"not printed": 2, "not comparable": 1}
    assert matrix.notes == {"a": f"{REASON} (1 cell)"}
    assert matrix.cells[1][0].hint == REASON


def test_of_a_cell_with_a_number_it_is_said_which_runs_are_left_out_of_it(written: Written) -> None:
    matrix = matrix_of(*written(["MAP1"]))
    cell = matrix.cells[2][0]
    assert (cell.ours, cell.word, cell.note) == ("50.00", "not printed", "a")
    assert matrix.notes == {"a": f"1 of its 2 runs is left out, {REASON} (1 cell)"}
    assert cell.hint.endswith(f"seeds: 50.00; 1 of its 2 runs is left out, {REASON}")


def test_a_seed_with_another_budget_than_the_other_seeds_of_its_cell_is_left_out(
    written: Written, tmp_path: Path
) -> None:
    """All rows of seed 1 have 7 epochs. Within a seed nothing differs, but a mean over seeds would mix."""
    item, _ = written([])
    for row in ("FedAvg", "FedProx", "MAP"):
        file = json.loads((tmp_path / f"{row}1" / "run.json").read_text())
        file["config"].setdefault("local", {})["epochs"] = 7
        (tmp_path / f"{row}1" / "run.json").write_text(json.dumps(sealed(file)))
    matrix = matrix_of(item, load_runs(run_folders(item)))
    assert [cells[0].ours for cells in matrix.cells] == ["50.00"] * 3
    (said,) = matrix.notes.values()
    assert said.startswith("1 of its 2 runs is left out, not comparable: local.epochs differs (7 / ")
    assert said.endswith("the second value is that of seed 0 (3 cells)")


def test_a_claim_about_runs_that_may_not_be_compared_says_so(written: Written) -> None:
    claims = [
        {"text": "FedProx above FedAvg", "terms": [[1.0, "FedProx", "iid"], [-1.0, "FedAvg", "iid"]]},
        {"text": "MAP above FedAvg", "terms": [[1.0, "MAP", "iid"], [-1.0, "FedAvg", "elsewhere"]]},
    ]
    item, runs = written(["FedProx0", "FedProx1"], claims=claims)
    assert [one.verdict for one in claim_results(item, runs)] == ["not comparable", "not run"]
    assert claim_counts(item, runs) == "2 claims: not comparable 1, not run 1"


def test_an_average_over_a_column_that_may_not_be_compared_is_not_comparable(written: Written) -> None:
    averages = [{"column": "avg", "of": ["iid"], "whole": 1, "printed": {}}]
    matrix = matrix_of(*written(["FedProx0", "FedProx1"], averages=averages))
    assert [cell.word for cell in matrix.cells[1]] == ["not comparable"] * 2
    assert matrix.counts["not comparable"] == 2


@pytest.mark.parametrize(
    ("measure", "apart", "why"),
    [
        ("personal_last", (), "its runs have no values of personal_last"),
        ("rounds_to_baseline", (), "rounds_to_baseline compares with Local, which is not run"),
    ],
)
def test_a_cell_whose_runs_lack_the_measure_is_not_measured(
    measure: str, apart: Sequence[str], why: str, written: Written
) -> None:
    baseline = "Local" if measure == "rounds_to_baseline" else "FedAvg"
    matrix = matrix_of(*written(apart, measure=measure, baseline=baseline))
    assert set(words(matrix).values()) == {"not measured"}
    assert matrix.notes == {"a": f"{why} (3 cells)"}
    assert matrix.cells[0][0].hint == f"not measured: {why}"

"""Which runs count in a cell of a paper's table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.item_runs import run_folders, strays
from raffed.analysis.reproduction.verdicts import paper_table, result_lines

from tests.analysis.changed_run import change
from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
ONE, OTHER = "a1b2c3d4" * 8, "c3d4e5f6" * 8


def test_a_run_of_another_partition_is_left_out_of_a_paper_s_cell_and_named(
    tmp_path: Path, write_run: WriteRun
) -> None:
    cells = []
    for row in ("FedAvg", "FedMR", "FedProx"):
        names = [write_run(f"{row}{seed}", [0.5, 0.6], method=row.lower(), seed=seed).name for seed in (0, 1)]
        cells.append({"row": row, "column": "a", "printed": {}, "runs": names})
    change(tmp_path / "FedMR1", "partition_sha256", OTHER)
    item = written_item(tmp_path, cells, scale="proxy", margin=0.5)
    runs = load_runs(run_folders(item))
    assert [len(line.ours) for line in result_lines(item, runs)] == [2, 1, 2]
    table = paper_table(item, runs)
    assert table.titles[-1] == "Runs left out"
    assert [line[-1][:15] for line in table.rows] == ["–", "not comparable:", "–"]


def test_a_paper_s_cell_counts_runs_that_were_rounded_in_several_ways(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """FedAvg was begun with the machine's bits and ended with portable ones; FedMR has portable ones only."""
    cells = []
    for row in ("FedAvg", "FedMR"):
        names = [
            write_run(f"{row}{seed}", [0.5, 0.6], method=row.lower(), seed=seed, partition_sha256=ONE).name
            for seed in range(3)
        ]
        cells.append({"row": row, "column": "a", "printed": {}, "runs": names})
    for folder in ("FedAvg2", "FedMR0", "FedMR1", "FedMR2"):
        change(tmp_path / folder, "config.numerics.bits", "portable")
    item = written_item(tmp_path, cells, scale="proxy", margin=0.5)
    runs = load_runs(run_folders(item))
    assert [len(line.ours) for line in result_lines(item, runs)] == [3, 3]
    assert "Runs left out" not in paper_table(item, runs).titles


def own_cells(write_run: WriteRun, hashes: list[str]) -> list[dict[str, object]]:
    """One cell of an own method, whose seeds are of code with these hashes."""
    names = []
    for seed, digest in enumerate(hashes):
        code = [{"role": "method", "reference": "./own.py:own", "files": {"own.py": digest}}]
        names.append(write_run(f"s{seed}", [0.5] * 8, method="./own.py:own", seed=seed, code=code).name)
    return [{"row": "Own", "column": "a", "printed": {}, "runs": names}]


@pytest.mark.parametrize("about", [{}, {"search": {"grid": {}}}], ids=["a table", "a tuned table"])
def test_a_seed_of_other_code_than_the_others_is_left_out_of_its_cell(
    tmp_path: Path, write_run: WriteRun, about: dict[str, object]
) -> None:
    item = written_item(tmp_path, own_cells(write_run, [ONE, OTHER, ONE]), **about)
    runs = load_runs(run_folders(item))
    assert strays(item, runs) == {
        "s1": "not comparable: its own code differs (own.py c3d4e5f6… / a1b2c3d4…); the second value is that "
        "of seed 0"
    }


def test_a_run_with_lacking_rows_is_left_out_of_its_cell(tmp_path: Path, write_run: WriteRun) -> None:
    item = written_item(tmp_path, own_cells(write_run, [ONE, ONE]))
    min((tmp_path / "s1" / "metrics").iterdir()).unlink()
    runs = load_runs(run_folders(item))
    assert strays(item, runs) == {
        "s1": "not comparable: its rows are not as the run wrote them (metrics: no part has the rows of "
        "rounds 1-5; put them back)"
    }

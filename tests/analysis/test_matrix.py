"""The table of a paper in its own shape: order of rows and columns, signs of verdicts, cells without runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_latex, item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.report import write_loaded
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.matrix import Matrix, matrix_of
from raffed.analysis.reproduction.matrix_text import matrix_table
from raffed.analysis.reproduction.table_order import table_order
from raffed.analysis.runs.load import Runs

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
PRINTED = {"table": "I", "dataset": "FaMnist", "metric": "aggregation_accuracy"}


def cell(row: str, network: str, runs: Sequence[str], **more: Any) -> dict[str, Any]:
    """A cell of MAP's Table I."""
    printed = {**PRINTED, "network": network, "method": row}
    return {"row": row, "column": f"FaMnist {network}", "printed": printed, "runs": list(runs), **more}


@pytest.fixture
def written(tmp_path: Path, write_run: WriteRun) -> Callable[..., tuple[Reproduction, Runs]]:
    """A part of MAP's Table I at a scale. It prints, for MLPNet and LeNet: FedAvg 86.2 and 86.3, MAP 88.1 and
    88.4. Ours in MLPNet are 86 over three seeds, and 80 with one; in LeNet only FedAvg ran, once, with 90.
    """

    def runs_of(name: str, scores: Sequence[float]) -> list[str]:
        return [write_run(f"{name}{seed}", [score], seed=seed).name for seed, score in enumerate(scores)]

    def make(scale: str = "full", **more: Any) -> tuple[Reproduction, Runs]:
        cells = [
            cell("MAP", "MLPNet", runs_of("m", [0.80])),
            cell("FedAvg", "MLPNet", runs_of("f", [0.855, 0.86, 0.865])),
            cell("MAP", "LeNet", []),
            cell("FedAvg", "LeNet", runs_of("l", [0.90])),
        ]
        left_out = ["MAP, FaMnist LeNet: does not fit into the budget"]
        about = {"paper": "map", "name": "table1", "title": "Aggregation accuracy", "margin": 2.0, **more}
        item = written_item(tmp_path, cells, scale=scale, left_out=left_out, **about)
        return item, load_runs(run_folders(item))

    return make


Written = Callable[..., tuple[Reproduction, Runs]]


def words(matrix: Matrix) -> dict[tuple[str, str], str]:
    return {
        (row, column): one.word
        for row, line in zip(matrix.rows, matrix.cells, strict=True)
        for column, one in zip(matrix.columns, line, strict=True)
    }


def test_rows_and_columns_are_in_the_paper_s_order_whatever_the_order_of_the_runs(written: Written) -> None:
    item, runs = written()
    matrix = matrix_of(item, runs)
    assert matrix.rows == ["FedAvg", "MAP"]
    assert matrix.columns == ["FaMnist MLPNet", "FaMnist LeNet"]


def test_what_is_not_printed_follows_what_it_follows_and_an_average_follows_its_columns() -> None:
    cells = [
        cell("First", "LeNet", [], printed={}),
        cell("MAP", "LeNet", []),
        cell("MAP (held out)", "x", [], printed={}),
        cell("FedAvg", "LeNet", []),
        cell("FedAvg (held out)", "LeNet", [], printed={}),
    ]
    average = {"column": "avg", "of": ["FaMnist LeNet"], "printed": {}}
    about = {"paper": "map", "cells": cells, "averages": [average]}
    rows, columns = table_order(Reproduction(Path(), about))
    assert rows == ["First", "FedAvg", "FedAvg (held out)", "MAP", "MAP (held out)"]
    assert columns == ["FaMnist LeNet", "avg", "FaMnist x"]


def test_a_cell_has_ours_over_the_printed_number_and_a_sign_of_its_verdict(written: Written) -> None:
    """Three seeds, 85.5, 86 and 86.5, have the interval 4.303 · 0.5 / √3 = 1.24; one seed has none.

    The difference to 86.2 has the 90 % interval −0.2 ± 0.84, within 2 points.
    """
    matrix = matrix_of(*written())
    assert words(matrix) == {
        ("FedAvg", "FaMnist MLPNet"): "agrees",
        ("MAP", "FaMnist MLPNet"): "too few seeds",
        ("FedAvg", "FaMnist LeNet"): "too few seeds",
        ("MAP", "FaMnist LeNet"): "not run",
    }
    assert matrix_table(matrix).rows == [
        ["FedAvg", "86.00 ± 1.24 / 86.20 ✓", "90.00 / 86.30 ?"],
        ["MAP", "80.00 / 88.10 ?", "– / 88.40 (a)"],
    ]


def test_smoke_says_that_a_cell_runs_and_nothing_about_the_paper(written: Written, tmp_path: Path) -> None:
    above = {"text": "MAP above", "terms": [[1.0, "MAP", "FaMnist MLPNet"]]}
    same = {"text": "Same", "terms": [], "within": 0.0}
    same["terms"] = [[1.0, "MAP", "FaMnist MLPNet"], [-1.0, "MAP", "FaMnist MLPNet"]]
    item, runs = written("smoke", claims=[above, same])
    page = write_loaded(runs, tmp_path / "out", [item]).read_text()
    said = item_markdown(item, runs) + item_latex(item, runs) + page.partition("<h2>How to read")[0]
    assert not re.findall(r"86\.20|86\.30|88\.10|88\.40|MAP above|agrees|\bholds\b|Paper", said)
    assert "runs, and the bits are equal" in said
    assert matrix_table(matrix_of(item, runs)).rows == [
        ["FedAvg", "runs ✓", "runs ✓"],
        ["MAP", "runs ✓", "– (a)"],
    ]


def test_a_proxy_shows_differences_over_printed_differences_and_the_baseline_s_level(
    written: Written,
) -> None:
    assert matrix_table(matrix_of(*written("proxy", margin=1.0))).rows == [
        ["FedAvg", "86.00 ± 1.24", "90.00"],
        ["MAP", "−5.50 / +1.90 ?", "– / +2.10 (a)"],
    ]


def test_columns_of_several_measures_have_their_own_decimal_places(
    tmp_path: Path, write_run: WriteRun
) -> None:
    names = [write_run("a", [0.8123]).name]
    cells = [
        {"row": "FedAvg", "column": "accuracy", "printed": {}, "runs": names},
        {"row": "FedAvg", "column": "rounds", "printed": {}, "runs": names, "measure": "rounds_to_baseline"},
    ]
    item = written_item(tmp_path, cells)
    assert matrix_table(matrix_of(item, load_runs(run_folders(item)))).rows == [["FedAvg", "81.23", "1"]]


def test_latex_has_the_paper_s_shape_and_right_minus_signs(written: Written) -> None:
    text = item_latex(*written("proxy", margin=1.0))
    assert r"& \multicolumn{2}{c}{FaMnist} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert "MAP & $-$5.50 ? & -- (a)" in text
    assert r"  & {\small +1.90} & {\small +2.10} \\" in text
    body = [line for line in text.splitlines() if "&" in line]
    assert {line.count("&") for line in body if "multicolumn" not in line} == {2}
    assert not re.search(r"--\d", text)


@pytest.mark.parametrize("name", ["<script>x</script>", "a & b"])
def test_a_name_with_markup_is_text_in_the_matrix(name: str, written: Written, tmp_path: Path) -> None:
    item, runs = written()
    cells: list[Mapping[str, Any]] = [{**one, "row": name} for one in item.about["cells"]]
    item = Reproduction(item.folder, {**item.about, "cells": cells[1:2], "baseline": name})
    page = write_loaded(runs, tmp_path / "out", [item]).read_text()
    assert f'<th scope="row">{name}' not in page

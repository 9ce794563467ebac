"""The table of a paper in its own shape, why a cell has no number, what stands before it, and its picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from raffed.analysis.figures.printed_plots import LOOKS
from raffed.analysis.figures.theme import LIGHT
from raffed.analysis.item_tables import item_latex, item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.report import write_loaded
from raffed.analysis.reproduction.claims import claim_results
from raffed.analysis.reproduction.differences_first import difference_matrix, first_sentence
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.matrix import Matrix, matrix_of
from raffed.analysis.reproduction.matrix_text import matrix_table
from raffed.analysis.reproduction.printed_view import printed_view
from raffed.analysis.reproduction.verdict_marks import MARKS
from raffed.analysis.reproduction.verdicts import paper_table
from raffed.analysis.runs.load import Runs

from tests.analysis.conftest import ONE, OTHER, WriteRun, WriteTable, change, written_item


def cell(row: str, network: str, runs: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A cell of MAP's Table I."""
    where = {"table": "I", "dataset": "FaMnist", "metric": "aggregation_accuracy"}
    printed = {**where, "network": network, "method": row}
    return {"row": row, "column": f"FaMnist {network}", "printed": printed, "runs": list(runs), **more}


@pytest.fixture
def table_1(tmp_path: Path, write_run: WriteRun) -> Callable[..., tuple[Reproduction, Runs]]:
    """A part of MAP's Table I at a scale. It prints, for MLPNet and LeNet: FedAvg 86.2 and 86.3, MAP 88.1 and
    88.4. Ours in MLPNet are 86 over three seeds, and 80 with one; in LeNet only FedAvg ran, once, with 90.
    """

    def runs_of(name: str, scores: Sequence[float]) -> list[str]:
        return [write_run(f"{name}{seed}", [score], seed=seed).name for seed, score in enumerate(scores)]

    def make(scale: str = "full", **more: Any) -> tuple[Reproduction, Runs]:
        cells = [
            cell("MAP", "MLPNet", runs_of("m", [0.80])),
            cell("FedAvg", "MLPNet", runs_of("f", [0.855, 0.86, 0.865])),
            cell("MAP", "LeNet"),
            cell("FedAvg", "LeNet", runs_of("l", [0.90])),
        ]
        left_out = ["MAP, FaMnist LeNet: does not fit into the budget"]
        about = {"paper": "map", "name": "table1", "title": "Aggregation accuracy", "margin": 2.0, **more}
        item = written_item(tmp_path, cells, scale=scale, left_out=left_out, **about)
        return item, load_runs(run_folders(item))

    return make


def words(matrix: Matrix) -> dict[str, list[str]]:
    return {row: [one.word for one in line] for row, line in zip(matrix.rows, matrix.cells, strict=True)}


def test_rows_and_columns_are_in_the_paper_s_order_with_ours_over_the_print_and_a_sign(table_1: Any) -> None:
    """Three seeds, 85.5, 86 and 86.5, have the interval 4.303 · 0.5 / √3 = 1.24; one seed has none.

    The difference to 86.2 has the 90 % interval −0.2 ± 0.84, within 2 points.
    """
    matrix = matrix_of(*table_1())
    assert matrix.columns == ["FaMnist MLPNet", "FaMnist LeNet"]
    assert words(matrix) == {"FedAvg": ["agrees", "too few seeds"], "MAP": ["too few seeds", "not run"]}
    assert matrix_table(matrix).rows == [
        ["FedAvg", "86.00 ± 1.24 / 86.20 ✓", "90.00 / 86.30 ?"],
        ["MAP", "80.00 / 88.10 ?", "– / 88.40 (a)"],
    ]


def test_smoke_says_that_a_cell_runs_and_nothing_about_the_paper(table_1: Any, tmp_path: Path) -> None:
    ours = [1.0, "MAP", "FaMnist MLPNet"]
    above = {"text": "MAP above", "terms": [ours]}
    same = {"text": "Same", "terms": [ours, [-1.0, *ours[1:]]], "within": 0.0}
    item, runs = table_1("smoke", claims=[above, same])
    page = write_loaded(runs, tmp_path / "out", [item]).read_text()
    said = item_markdown(item, runs) + item_latex(item, runs) + page.partition("<h2>How to read")[0]
    assert not re.findall(r"86\.20|86\.30|88\.10|88\.40|MAP above|agrees|\bholds\b|Paper", said)
    assert "runs, and the bits are equal" in said
    assert matrix_table(matrix_of(item, runs)).rows == [
        ["FedAvg", "runs ✓", "runs ✓"],
        ["MAP", "runs ✓", "– (a)"],
    ]


def test_a_proxy_shows_differences_over_printed_differences_and_the_baseline_s_level(table_1: Any) -> None:
    proxy = table_1("proxy", margin=1.0)
    assert matrix_table(matrix_of(*proxy)).rows == [
        ["FedAvg", "86.00 ± 1.24", "90.00"],
        ["MAP", "−5.50 / +1.90 ?", "– / +2.10 (a)"],
    ]
    latex = item_latex(*proxy)
    assert r"& \multicolumn{2}{c}{FaMnist} \\" in latex
    assert "MAP & $-$5.50 ? & -- (a)" in latex
    assert r"  & {\small +1.90} & {\small +2.10} \\" in latex


# A cell without a number was not run, or its runs may not be compared, or they do not have the measure

REASON = "not comparable: the partition differs (c3d4e5f6… / a1b2c3d4…); the second value is that of FedAvg"
ROWS = {row: (None, [0.5, 0.6]) for row in ("FedAvg", "FedProx", "MAP")}


@pytest.fixture
def apart(tmp_path: Path, write_table: WriteTable) -> Callable[..., tuple[Reproduction, Runs]]:
    """Three rows of two seeds, with 50 and 60. The partition of the runs `names` is another."""

    def make(*names: str, **about: Any) -> tuple[Reproduction, Runs]:
        item, runs = write_table(ROWS, **about)
        for name in runs.files:
            change(tmp_path / name, "partition_sha256", OTHER if name in names else ONE)
        return item, load_runs(run_folders(item))

    return make


def test_a_cell_and_an_average_of_another_partition_are_not_comparable_and_not_unrun(apart: Any) -> None:
    averages = [{"column": "avg", "of": ["IID"], "whole": 1, "printed": {}}]
    matrix = matrix_of(*apart("FedProx-0", "FedProx-1", averages=averages))
    others = ["not printed"] * 2
    assert words(matrix) == {"FedAvg": others, "FedProx": ["not comparable"] * 2, "MAP": others}
    assert matrix.counts == {"not printed": 4, "not comparable": 2}
    assert matrix.notes["a"].startswith(REASON)
    assert matrix.cells[1][0].hint == REASON


def test_the_mean_over_the_seeds_that_did_not_diverge_has_no_verdict(write_table: WriteTable) -> None:
    """Three printed numbers, missed by hundredths. Of three seeds, 3, 2 and none are left."""
    why = "client 3: a value is not finite; try clip_norm"
    rows = {
        "FedAvg": (88.09, [0.8809, 0.881, 0.8811]),
        "FedNova": (88.22, [0.8822, 0.8823]),
        "SCAFFOLD": (88.44, []),
    }
    told = [
        f"{row}, IID: diverged: seed {seed}: {why}"
        for row, (_, scores) in rows.items()
        for seed in range(len(scores), 3)
    ]
    above = {"text": "FedNova is above", "terms": [[1.0, "FedNova", "IID"], [-1.0, "FedAvg", "IID"]]}
    item, runs = write_table(rows, left_out=told, claims=[above])
    table = paper_table(item, runs)
    seeds, verdict = (table.titles.index(name) for name in ("Seeds", "Verdict"))
    assert {line[0]: (line[seeds], line[verdict]) for line in table.rows} == {
        "FedAvg": ("3", "agrees"),
        "FedNova": ("2 of 3, 1 diverged", "diverged"),
        "SCAFFOLD": ("0 of 3, 3 diverged", "diverged"),
    }
    assert claim_results(item, runs)[0].verdict == "diverged: training diverged in some runs of FedNova"
    matrix = matrix_of(item, runs)
    assert matrix.counts == {"agrees": 1, "diverged": 2}
    assert (
        "1 of its 3 runs diverged, seed 2: client 3: a value is not finite (1 cell)" in matrix.notes.values()
    )
    assert len(printed_view(item, runs).figures) == 1
    assert {mark.css for mark in MARKS.values() if mark.css != "absent"} <= {*LOOKS}


# What a table says first: how many differences have the printed sign, and in which order its rows are

ORDERED = {  # FedProx is printed within the margin of FedAvg
    "FedAvg": (50.0, [0.500, 0.510, 0.520]),
    "MAP": (54.0, [0.530, 0.541, 0.549]),  # gains 3, 3.1, 2.9
    "MOON": (53.0, [0.480, 0.489, 0.501]),  # gains −2, −2.1, −1.9
    "FedRS": (48.0, [0.500, 0.500, 0.525]),  # gains 0, −1, 0.5
    "FedProx": (50.5, [0.505, 0.515, 0.526]),
}
SIGNS = (
    "Of 3 printed differences to FedAvg that are larger than 1: 1 with the same sign here, 1 with the other "
    "sign, 1 not separated from none. The rank correlation of the printed order and ours is 0.40 in IID."
)


def test_the_sentence_counts_signs_orders_and_levels(write_table: WriteTable) -> None:
    """In print FedRS, FedAvg, FedProx, MOON, MAP; here MOON 49, FedRS 50.8, FedAvg 51, FedProx 51.5, MAP 54.

    Σ d² = 1 + 1 + 1 + 9 + 0 = 12, so the correlation is 1 − 6 · 12 / (5 · 24) = 0.4.
    """
    item, runs = write_table(ORDERED)
    said = first_sentence(item, runs)
    assert said.startswith(f"{SIGNS} ")
    assert said.endswith("0 of 5 agree; FedAvg in their place: 0 of 5.")
    columns = [{**one, "column": f"split {n}"} for n in range(5) for one in item.about["cells"]]
    wide = item._replace(about={**item.about, "cells": columns})
    assert "is 0.40 to 0.40 in 5 columns, with the median 0.40." in first_sentence(wide, runs)
    proxy, smoke = (item._replace(about={**item.about, "scale": scale}) for scale in ("proxy", "smoke"))
    assert (first_sentence(proxy, runs), first_sentence(smoke, runs)) == (SIGNS, "")
    assert difference_matrix(proxy, runs) is None


def test_a_row_that_lost_runs_has_no_rank(write_table: WriteTable) -> None:
    """Without MOON the order here is that of the print."""
    item, runs = write_table(ORDERED, left_out=["MOON, IID: diverged: seed 3: a value is not finite"])
    assert "is 1.00 in IID" in first_sentence(item, runs)


# The picture has each cell with both numbers once, and shows its margin by a bar

DRAWN = {
    "FedAvg": (50.0, [0.50, 0.51, 0.52]),
    "FedRS": (52.0, [0.58, 0.58, 0.58]),
    "FedMR": (None, [0.60, 0.60, 0.60]),
    "FedProx": (50.5, []),
}


def panel(item: Reproduction, runs: Runs) -> Axes:
    (drawn,) = printed_view(item, runs).figures
    return drawn.figure.axes[0]


def rows_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_yticklabels()]


def points(axes: Axes, y: int) -> list[list[float]]:
    """Return the values of the marks in a row: the printed numbers, then seeds if there are any, our mean."""
    found = [np.asarray(line.get_data(), float) for line in axes.get_lines()]
    return [line[0].round(6).tolist() for line in found if line.shape[1] and (line[1] == y).all()]


def test_each_cell_with_both_numbers_has_its_seeds_their_mean_and_the_margin(write_table: WriteTable) -> None:
    item, runs = write_table(DRAWN, margin=1.5)
    axes = panel(item, runs)
    assert rows_of(axes) == ["FedAvg", "FedRS"]
    assert points(axes, 0) == [[50.0], [50.0, 51.0, 52.0], [51.0]]
    assert points(axes, 1) == [[52.0], [58.0, 58.0, 58.0], [58.0]]
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx((48.5, 51.5)), pytest.approx((50.5, 53.5))]
    cells = [{**one, "target": False} for one in item.about["cells"]]
    axes = panel(item._replace(about={**item.about, "cells": cells}), runs)
    assert not list(axes.patches)
    lines = [line for line in axes.get_lines() if line.get_marker() != "|"]
    means = [line for line in lines if len(np.atleast_1d(line.get_xdata())) == 1]
    assert {line.get_color() for line in means} == {LIGHT.colours[LOOKS["plain"][0]]}

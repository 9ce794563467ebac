"""Gains, distances to the best other method, costs and averages; what is counted of verdicts. The table of a
paper in its own shape, why a cell has no number, what stands before it, and its picture.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from raffed.analysis.figures.printed_plots import LOOKS
from raffed.analysis.figures.theme import LIGHT, svg
from raffed.analysis.item_tables import item_latex, item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.report import write_loaded
from raffed.analysis.reproduction.averages import ScorePair, averages_view, front
from raffed.analysis.reproduction.claims import claim_results
from raffed.analysis.reproduction.differences import KINDS, added, difference_table, gain, to_best_other
from raffed.analysis.reproduction.differences_first import difference_matrix, first_sentence
from raffed.analysis.reproduction.item_runs import Reproduction, load_item, run_folders
from raffed.analysis.reproduction.item_views import item_view
from raffed.analysis.reproduction.matrix import Matrix, matrix_of
from raffed.analysis.reproduction.matrix_text import matrix_table
from raffed.analysis.reproduction.null_rate import CANNOT_TELL, Agreement, agreement_of
from raffed.analysis.reproduction.printed import printed_values
from raffed.analysis.reproduction.printed_view import printed_view
from raffed.analysis.reproduction.verdict_marks import MARKS
from raffed.analysis.reproduction.verdict_rows import VERDICT_COLUMNS, verdict_rows, write_verdicts
from raffed.analysis.reproduction.verdicts import paper_table, result_lines, verdict
from raffed.analysis.runs.load import Runs, read_runs
from raffed.analysis.sections import paper_section
from raffed.analysis.table import TextTable
from raffed.reproductions.pages.checker_page import _line
from raffed.reproductions.pages.findings import judged
from raffed.reproductions.pages.packed.files import pack_folder, read_records

from raffed.results.metric import Row
from raffed.tables.catalogue import find_item
from raffed.tables.item_file import write_item
from raffed.tables.planner import planned_runs
from tests.analysis.conftest import ONE, OTHER, WriteRun, WriteTable, change, write_rows, written_item

NO_RUN = "–"


def item(folder: Path, key: str, cells: Mapping[tuple[str, str], Sequence[Row]]) -> tuple[Reproduction, Runs]:
    """An item at full scale; behind its cells (row, column) runs of these rows, a seed each; one client
    takes part.
    """
    whole = find_item(key)
    found = load_item(write_item(whole, "full", folder, planned_runs(whole, "full", folder, [], 1)))
    for cell in found.about["cells"]:
        for seed, row in enumerate(cells.get((cell["row"], cell["column"]), ())):
            name = f"{cell['row']}-{cell['column'].replace(' ', '-')}-{seed}"
            config = {"seed": seed, "federation": {"participation": 1.0}}
            write_rows(folder / name, [row], config, clients=1)
            cell["runs"].append(str(folder / name))
    return found, read_runs([folder])


def scored(*values: float) -> list[Row]:
    return [Row(1, "global", "test", "accuracy", value, n=9) for value in values]


def sends(floats: int) -> list[Row]:
    return [Row(1, "global", "train", "loss", 1.0, n=9, bytes_up=4 * floats, bytes_down=0, seconds=1.0)]


SHOWN = ("Paper", "From its numbers", "Ours")


def lines(table: TextTable | None, *titles: str) -> dict[tuple[str, str], list[str]]:
    """(column, first word of what it is) → texts under these titles."""
    told = [dict(zip(table.titles, line, strict=True)) for line in table.rows]
    return {
        (line["Column"], line["What"].split()[0]): [line[title] for title in (*SHOWN, *titles)]
        for line in told
    }


def test_differences_are_of_common_seeds_and_the_best_other_is_not_the_baseline() -> None:
    """c has the best single seed, b the higher mean (5 to 4.5) over the two seeds that all have; d never
    ran.
    """
    scores: dict[str, dict[int, float]] = {
        "a": {0: 8.0, 1: 9.0},
        "base": {0: 4.0, 1: 6.0, 2: 7.0},
        "b": {0: 5.0, 1: 5.0, 2: 0.0},
        "c": {0: 6.0, 1: 3.0},
        "d": {},
    }
    assert gain(scores, "a", "base").values == [4.0, 3.0]
    assert added(scores, "a", "base").values == pytest.approx([100.0, 50.0])
    assert to_best_other(scores, "a", "base") == ([3.0, 4.0], "b (2 of 3 ran)")
    assert to_best_other({"a": {0: 1.0}, "base": {0: 1.0}, "b": {1: 1.0}}, "a", "base") == ([], "")


def test_table_1_s_wrong_gain_stands_beside_what_the_printed_accuracies_give_and_ours(tmp_path: Path) -> None:
    """CIFAR-10 P10C2: 2.23 is printed for 73.32 − 67.27. Ours: gains 11 and 8, of two seeds without an
    interval; MOON has the best mean but FedMR's, 71 − 66 and 70 − 66. In FMNIST P5C2 the paper's best other
    is FedDyn, 71.01, which was not run.
    """
    column = "CIFAR10 P10C2"
    scores = {"FedAvg": (0.60, 0.62), "FedProx": (0.70, 0.60), "MOON": (0.66, 0.66), "FedMR": (0.71, 0.70)}
    found, runs = item(
        tmp_path, "fedmr/table1", {(row, column): scored(*both) for row, both in scores.items()}
    )
    told = lines(
        item_view(found, runs).tables["Differences that the paper prints"],
        "Best other: paper",
        "Best other: ours",
    )
    assert told[column, "gain"][:3] == ["+2.23", "+6.05", "+9.50"]
    assert told[column, "Δ"] == ["+2.23", "+2.23", "+4.50", "FedProx", "MOON (2 of 6 ran)"]
    assert told["FMNIST P5C2", "Δ"][:4] == ["+4.50", "+4.50", NO_RUN, "FedDyn"]
    printed = printed_values("fedmr")
    assert len(told) == ((printed["table"] == "Table1") & printed["metric"].isin(list(KINDS))).sum() == 48


def test_table_3_s_cost_is_the_closed_form(tmp_path: Path) -> None:
    """docs/papers/fedmr.md §4: C·d of prototypes over weights and statistics of BatchNorm, 0.0458 % for
    ResNet-18; here with the counts of classes and of samples. Printed are digits cut off numbers that were
    rounded before.
    """
    sizes = {
        "CIFAR10 -": (11_183_562, 10 * 512, 10),
        "CIFAR100 -": (36_564_932, 100 * 640, 100),
        "ISIC2019 -": (4_874_532, 8 * 640, 8),
    }
    cells: dict[tuple[str, str], list[Row]] = {}
    for name, (model, prototypes, classes) in sizes.items():
        cells["without_prototypes", name] = sends(model + 1)
        cells["with_prototypes", name] = sends(model + prototypes + classes + 1)
    told = lines(difference_table(*item(tmp_path, "fedmr/table3", cells)))
    assert {column: texts for (column, _), texts in told.items()} == {
        "FMNIST -": ["+0.044", "+0.045", NO_RUN],
        "SVHN -": ["+0.044", "+0.045", NO_RUN],
        "CIFAR10 -": ["+0.044", "+0.045", "+0.046"],
        "CIFAR100 -": ["+0.175", "+0.175", "+0.175"],
        "ISIC2019 -": ["+0.102", "+0.103", "+0.105"],
    }
    assert difference_table(*item(tmp_path / "none", "map/table1", {})) is None


def test_averages_over_the_columns_that_all_have_are_drawn_with_their_front(tmp_path: Path) -> None:
    """docs/papers/map.md §E6, Fig. 9: MAP and ScaMAP; all 21 methods of Table I are printed."""
    figure, runs = item(tmp_path, "map/fig9", {})
    (drawn,), tables = averages_view(figure, runs)
    (table,) = tables.values()
    assert len(table.rows) == 21
    assert {line[0] for line in table.rows if line[3] == "yes"} == {"MAP", "ScaMAP"}
    fedavg = next(line for line in table.rows if line[0] == "FedAvg")
    assert fedavg[1:] == ["64.0", "71.3", "", "–", "–", "–"]
    assert "ScaMAP" in svg(drawn.figure)
    pairs = {"a": (0.5, 0.9), "b": (0.9, 0.5), "c": (0.5, 0.8), "d": (0.6, 0.6), "e": (0.6, 0.6)}
    assert front({name: ScorePair(*pair) for name, pair in pairs.items()}) == {"a", "b", "d", "e"}


ROOT = Path(__file__).resolve().parents[2]
AT_50, AT_54 = [0.499, 0.500, 0.501], [0.539, 0.540, 0.541]


# The null rate: how many cells agree if the baseline's own runs stand in every row's place

ALIKE = {"FedAvg": 50.0, "FedProx": 50.2, "FedRS": 43.5, "MOON": 55.0}


def test_a_table_whose_rows_are_all_fedavg_cannot_tell(write_table: WriteTable) -> None:
    """Every row has FedAvg's accuracies: three of four printed numbers are within a point of them. FedRS is
    read by the mean over classes, which have 0.6, 0.6 + 0.8/3 and 0.6 + 1.6/3 of 50 %.
    """
    item, runs = write_table({row: (printed, AT_50) for row, printed in ALIKE.items()})
    item.about["cells"][2]["measure"] = "balanced_last"
    found = agreement_of(item, runs)
    assert found == Agreement("FedAvg", 3, 4, 3, 4)
    assert not found.tells
    said = f"3 of 4 agree; FedAvg in their place: 3 of 4. {CANNOT_TELL}"
    assert found.sentence() == said
    for text in (item_markdown(item, runs), str(paper_section(item, runs)), " ".join(_line(item, runs))):
        assert "FedAvg in their place: 3 of 4" in text
        assert "This table cannot tell" in text
    assert {row["null_rate"] for row in verdict_rows(item, runs)} == {0.75}


# verdicts.json and verdicts.csv: one row a cell and a claim, with all that the verdict rests on


@pytest.fixture
def folder(write_run: WriteRun, write_table: WriteTable) -> Path:
    """FedAvg 51 and FedRS 55 over three seeds, where 51 and 52 are printed; the margin is 2."""
    gain = [[1.0, "FedRS", "IID"], [-1.0, "FedAvg", "IID"]]
    claims = [{"text": f"above by {more}", "terms": gain, "minus": more} for more in (0.0, 2.0)]
    rows = {"FedAvg": (51.0, [0.50, 0.51, 0.52]), "FedRS": (52.0, [0.53, 0.55, 0.57])}
    return write_table(rows, margin=2.0, claims=claims, picture="", study="", studies=[])[0].folder


def rows_of(folder: Path) -> list[Any]:
    item = load_item(folder / "item.json")
    return verdict_rows(item, load_runs(run_folders(item)))


def test_a_cell_has_its_difference_interval_margin_and_null_rate(folder: Path) -> None:
    """FedRS's gains are 3, 4 and 5, with 95 % interval 4 ± 4.303 / √3. To 52 it has 3 ± 2.920 · 2 / √3."""
    fedavg, fedrs, *_ = rows_of(folder)
    assert (fedavg["verdict"], fedrs["verdict"]) == ("agrees", "too few seeds")
    assert (fedrs["kind"], fedrs["item"], fedrs["scale"]) == ("cell", "own/n", "full")
    assert (fedrs["row"], fedrs["column"], fedrs["seeds"]) == ("FedRS", "IID", [0, 1, 2])
    assert fedrs["runs"] == ["FedRS-0", "FedRS-1", "FedRS-2"]
    assert fedrs["weights"] == ["ab" * 32] * 3
    names = ("printed", "mean", "sd", "difference", "printed_difference", "margin", "null_rate")
    assert [fedrs[name] for name in names] == pytest.approx([52.0, 55.0, 2.0, 4.0, 1.0, 2.0, 0.5])
    assert fedrs["difference_half"] == pytest.approx(4.302653 / 3**0.5)
    half = 2.919986 * 2 / 3**0.5
    assert [fedrs["interval_low"], fedrs["interval_high"]] == pytest.approx([3 - half, 3 + half], abs=1e-5)
    assert (fedrs["p"], fedrs["printed_spread"], fedrs["printed_runs"]) == (None, None, None)


def test_a_claim_has_its_p_before_and_after_holm_s_correction(folder: Path) -> None:
    """t = 4 √3 and 2 √3 with two degrees of freedom: P(|T| > t) = 1 − t / √(2 + t²)."""
    first, second = rows_of(folder)[2:]
    p = [1 - t / (2 + t * t) ** 0.5 for t in (4 * 3**0.5, 2 * 3**0.5)]
    assert [first["p"], second["p"]] == pytest.approx(p)
    assert [first["p_holm"], second["p_holm"]] == pytest.approx([2 * p[0], p[1]])
    assert (first["kind"], first["verdict"], second["verdict"]) == ("claim", "holds", "not separated")
    assert (first["row"], first["column"]) == ("FedRS; FedAvg", "IID")


def test_json_and_csv_have_the_same_rows_and_the_documented_columns(folder: Path) -> None:
    rows = [*rows_of(folder), dict.fromkeys(VERDICT_COLUMNS) | {"term_strength": {"a": 0.5}}]
    write_verdicts(folder, rows)
    written = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    assert written == rows
    assert all(list(row) == list(VERDICT_COLUMNS) for row in written)
    sheet = list(csv.DictReader((folder / "verdicts.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["verdict"] or None for row in sheet] == [row["verdict"] for row in written]
    assert (sheet[1]["seeds"], sheet[-1]["term_strength"], sheet[-1]["p"]) == ("0 1 2", "a=0.5", "")
    page = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    part = page.partition("## Verdicts for programs")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part, re.MULTILINE)) == VERDICT_COLUMNS
    pack_folder(folder, folder / "packed")
    assert not [name for name in read_records(folder / "packed").objects if "verdicts" in name]


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
    if_so = {"text": "FedAvg is good", "terms": [[1.0, "FedAvg", "IID"]], "given": above["terms"]}
    item, runs = write_table(rows, left_out=told, claims=[above, if_so])
    table = paper_table(item, runs)
    seeds, verdict = (table.titles.index(name) for name in ("Seeds", "Verdict"))
    assert {line[0]: (line[seeds], line[verdict]) for line in table.rows} == {
        "FedAvg": ("3", "agrees"),
        "FedNova": ("2 of 3, 1 diverged", "diverged"),
        "SCAFFOLD": ("0 of 3, 3 diverged", "diverged"),
    }
    why = "diverged: training diverged in some runs of FedNova"
    assert [claim.verdict for claim in claim_results(item, runs)] == [why, why]
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
    "Of 3 printed differences to FedAvg that are at least 1: 1 with the same sign here, 1 with the other "
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


def test_a_row_that_lost_runs_has_no_rank_and_one_of_missing_settings_no_sign(
    write_table: WriteTable,
) -> None:
    """Without MOON the order here is that of the print."""
    item, runs = write_table(ORDERED, left_out=["MOON, IID: diverged: seed 3: a value is not finite"])
    assert "is 1.00 in IID" in first_sentence(item, runs)
    ran = item.about["cells"][1]["runs"]
    item.about["cells"][1]["settings"] = [{"setting": "a", "runs": ran}, {"setting": "b", "runs": []}]
    assert first_sentence(item, runs).startswith(
        "Of 1 printed differences to FedAvg that are at least 1: 1 not"
    )


def test_differences_to_a_baseline_that_lost_runs_are_not_judged(write_table: WriteTable) -> None:
    """Levels of the others are. Of these four rows Σ d² = 1 + 1 + 4 + 0, and 1 − 6 · 6 / (4 · 15) = 0.4."""
    item, runs = write_table(ORDERED, left_out=["FedAvg, IID: diverged: seed 3: a value is not finite"])
    said = "The rank correlation of the printed order and ours is 0.40 in IID. 0 of 4 agree"
    assert first_sentence(item, runs) == f"{said}; no result of FedAvg."
    found = result_lines(item, runs)
    assert {verdict(line, "proxy", 1.0) for line in found} == {"diverged"}
    assert [judged(line, "FedAvg") for line in found] == ["baseline", *["diverged"] * 4]


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


def rows_named(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_yticklabels()]


def points(axes: Axes, y: int) -> list[list[float]]:
    """Return the values of the marks in a row: the printed numbers, then seeds if there are any, our mean."""
    found = [np.asarray(line.get_data(), float) for line in axes.get_lines()]
    return [line[0].round(6).tolist() for line in found if line.shape[1] and (line[1] == y).all()]


def test_each_cell_with_both_numbers_has_its_seeds_their_mean_and_the_margin(write_table: WriteTable) -> None:
    item, runs = write_table(DRAWN, margin=1.5)
    axes = panel(item, runs)
    assert rows_named(axes) == ["FedAvg", "FedRS"]
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

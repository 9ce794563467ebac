"""What is counted of verdicts, and where it stands: the null rate and files for programs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.item_runs import load_item, run_folders
from raffed.analysis.reproduction.null_rate import CANNOT_TELL, Agreement, agreement_of
from raffed.analysis.reproduction.verdict_rows import VERDICT_COLUMNS, verdict_rows, write_verdicts
from raffed.analysis.sections import paper_section
from raffed.reproductions.pages.checker_page import _line
from raffed.reproductions.pages.packed.files import pack_folder, read_records

from tests.analysis.conftest import WriteRun, WriteTable

ROOT = Path(__file__).resolve().parents[2]
AT_50, AT_54 = [0.499, 0.500, 0.501], [0.539, 0.540, 0.541]


# The null rate: how many cells agree if the baseline's own runs stand in every row's place

ALIKE = {"FedAvg": 50.0, "FedProx": 50.2, "FedRS": 49.8, "MOON": 55.0}


def test_a_table_whose_rows_are_all_fedavg_cannot_tell(write_table: WriteTable) -> None:
    """Every row has FedAvg's accuracies: three of four printed numbers are within a point of them."""
    item, runs = write_table({row: (printed, AT_50) for row, printed in ALIKE.items()})
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

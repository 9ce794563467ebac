"""The page on what came out of other people's tables: verdicts, machines, and prose that stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.reproduction.null_rate import CANNOT_TELL
from raffed.reproductions.pages.checker_page import main

from tests.analysis.written_item import written_item

PUBLISHED = {
    "source": "someone",
    "protocol": "the last round",
    "needs": "nothing",
    "cost": "nothing",
    "defects": ["It is misprinted."],
    "absent": {},
    "lacks": [],
}


@pytest.fixture
def table(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    """Two methods with three seeds: one at the printed level, and one ten points above it."""
    cells = []
    for row, level in {"FedAvg": 0.5, "FedRS": 0.6}.items():
        folders = [
            write_run(
                f"{row}-{seed}",
                [level + seed / (500 if row == "FedRS" else 1000)],
                method=row.lower(),
                seed=seed,
            )
            for seed in range(3)
        ]
        runs = [f"../{folder.name}" for folder in folders]
        cells.append({"row": row, "column": "IID", "printed": {"value": 50.0}, "runs": runs})
    written_item(
        tmp_path / "item",
        cells,
        name="t",
        title="A table",
        unit="accuracy, %",
        claims=[{"text": "FedRS is above FedAvg", "terms": [[1.0, "FedRS", "IID"], [-1.0, "FedAvg", "IID"]]}],
        picture="",
        study="",
        studies=[],
        published=PUBLISHED,
    )
    return tmp_path


def page(table: Path) -> str:
    out = table / "page.md"
    assert main([str(table), "--out", str(out), "--prose", str(table / "prose")]) == 0
    return out.read_text(encoding="utf-8")


def test_the_page_counts_verdicts_and_claims_and_says_how_the_runs_were_made(table: Path) -> None:
    text = page(table)
    count = f"1 of 2 agree; FedAvg in their place: 2 of 2. {CANNOT_TELL}"
    assert f"| own/t | full | agrees 1, differs 1. {count} | holds 1 | 6 | 0, 1, 2 |" in text
    assert "6 runs with the seeds 0, 1, 2: " in text
    assert "`raffed reproduce own/t --scale full --out checker --execution serial` makes them again" in text
    assert "It is misprinted." in text


@pytest.mark.more
@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("FedRS | IID", "60.20 ± 0.50"),  # 60.0, 60.2, 60.4: t = 4.303, s/√3 = 0.1155
        ("FedRS | IID | mean", "60.20"),
        ("FedRS | IID | printed", "50.00"),
        ("FedRS | IID | off", "+10.20"),
        ("FedRS | IID | span", "0.40"),
        ("FedRS | IID | seed 2", "60.40"),
        ("FedRS | IID | gain", "+10.10 ± 0.25"),
        ("FedAvg | IID | − FedRS", "−10.10 ± 0.25"),
        ("FedRS | IID | order", "above"),
        ("FedRS | IID | diverged", "0"),
        ("cells", f"agrees 1, differs 1. 1 of 2 agree; FedAvg in their place: 2 of 2. {CANNOT_TELL}"),
        ("claims", "holds 1"),
    ],
)
def test_an_expression_in_the_prose_is_replaced_by_the_number_of_the_records(
    table: Path, expression: str, number: str
) -> None:
    (table / "prose").mkdir()
    (table / "prose" / "own-t.md").write_text(f"It is {{{{{expression}}}}}.\n", encoding="utf-8")
    assert f"\n\nIt is {number}.\n\n" in page(table)


@pytest.mark.parametrize(
    "expression", ["FedProx | IID", "FedRS | IID | seed 9", "FedRS | IID | gian", "FedRS"]
)
def test_an_expression_without_a_number_is_refused(
    table: Path, expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (table / "prose").mkdir()
    (table / "prose" / "own-t.md").write_text(f"It is {{{{{expression}}}}}.\n", encoding="utf-8")
    assert main([str(table), "--out", str(table / "page.md"), "--prose", str(table / "prose")]) == 2
    assert "own/t, full: A table: " in capsys.readouterr().err

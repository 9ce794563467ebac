"""docs/checker_results.md is the page that its records make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from raffed.reproductions.checker.items import ITEMS
from raffed.reproductions.pages.checker_page import written

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs") / "checker_results.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
RECORDS = [Path(name) for name in re.findall(r"reproductions/records/[\w-]+", TEXT.split("```")[0])]


@pytest.mark.more
def test_the_page_is_made_from_the_records_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in its head makes it again, with a picture for each table.

    The bytes of a picture depend on the version of matplotlib, so only its name is compared.
    """
    monkeypatch.chdir(ROOT)
    files = written(RECORDS, PAGE)
    assert files.pop(PAGE) == TEXT
    assert {path.name for path in files} == {path.name for path in (ROOT / "docs").glob("checker-*.svg")}


def test_the_page_names_tables_that_exist_and_says_something_about_each() -> None:
    keys = re.findall(r"^## (checker/[\w-]+), ", TEXT, re.MULTILINE)
    assert keys
    assert set(keys) <= {item.key for item in ITEMS}
    assert "Nothing was written about this table yet" not in TEXT


@pytest.mark.parametrize(
    "file", sorted((ROOT / "reproductions" / "pages" / "prose").glob("*.md")), ids=lambda file: file.stem
)
def test_a_measured_number_stands_in_prose_as_an_expression_alone(file: Path) -> None:
    """So the page has it from the records. Settings, and names of rows and columns, may have digits."""
    item = next(item for item in ITEMS if item.key.replace("/", "-") == file.stem)
    text = " ".join(
        re.sub(r"\{\{.+?\}\}|`.+?`", "", file.read_text(encoding="utf-8"), flags=re.DOTALL).split()
    )
    for name in sorted(
        {name for cell in item.cells for name in (cell.row, cell.column)}, key=len, reverse=True
    ):
        text = text.replace(name, "")
    text = re.sub(r"([λμ] =|momentum) [\d.]+\d", "", text)
    assert not re.findall(r"\S*\d\.\d\S*|[+−±] ?\d\S*|\d\S* (?:%|points?\b)", text)

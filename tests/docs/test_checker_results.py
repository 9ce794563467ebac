"""docs/checker_results.md is the page that its records make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from raffed.analysis.checker_page import written

from raffed.experiments.checker.items import ITEMS

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs") / "checker_results.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
RECORDS = [Path(name) for name in re.findall(r"analysis/records/[\w-]+", TEXT.split("```")[0])]


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

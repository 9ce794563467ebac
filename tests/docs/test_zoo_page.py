"""docs/zoo.md is the page that its records make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from raffed.analysis.runs.method_names import METHOD_NAMES
from raffed.reproductions.pages.zoo_page import written
from raffed.reproductions.zoo.items import ITEMS

from raffed.core.server import ServerRule
from raffed.methods import METHODS, build_method

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs") / "zoo.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
RECORDS = [Path(name) for name in re.findall(r"reproductions/records/[\w-]+", TEXT.split("```")[0])]


@pytest.mark.slow
def test_the_page_is_made_from_the_records_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in its head makes it again."""
    monkeypatch.chdir(ROOT)
    assert written(RECORDS, PAGE) == TEXT


def test_the_page_says_of_which_methods_a_hash_does_not_name_the_scored_model() -> None:
    """They are those whose server's rule evaluates other weights than it broadcasts."""
    others = {
        METHOD_NAMES[name]
        for name in METHODS
        if type(build_method(name, {}).server).evaluation_weights is not ServerRule.evaluation_weights
    }
    (said,) = re.findall(r"^(.+) can be scored with another model", TEXT.replace("\n", " "), re.MULTILINE)
    assert set(re.findall(r"\w+", said.rpartition(". ")[2])) - {"and"} == others


def test_the_page_names_records_that_are_there_and_tables_that_exist() -> None:
    assert RECORDS
    assert all((ROOT / path / "records.parquet").exists() for path in RECORDS)
    titles = re.findall(r"^## (zoo/[\w-]+), (\w+): ", TEXT, re.MULTILINE)
    assert titles
    assert {key for key, _ in titles} <= {item.key for item in ITEMS}
    assert {scale for _, scale in titles} == {"full"}

"""docs/checker.md says what the code says, and is in the navigation."""

from __future__ import annotations

from pathlib import Path

from raffed.reproductions.checker.items import ITEMS

from tests.docs.checker import PAGE, page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_made_from_the_items() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.docs.checker"


def test_the_page_names_every_table_with_its_command_and_its_defects() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for item in ITEMS:
        assert f"raffed reproduce {item.key} --scale full" in text
        assert item.published is not None
        assert all(defect in text for defect in item.published.defects)


def test_the_page_is_in_the_navigation() -> None:
    assert "checker.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

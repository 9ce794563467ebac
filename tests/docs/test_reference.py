"""docs/reference says what the code does."""

from __future__ import annotations

import re

import pytest

import raffed
from raffed.cli.app import app
from raffed.config.sections import SECTIONS
from raffed.config.validation import declarations
from raffed.data.catalogue import DATASETS
from raffed.data.splits import SPLITS
from raffed.models import MODELS
from tests.docs.command_line import plain
from tests.docs.reference import FOLDER, PAGES


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_the_code_makes(name: str) -> None:
    """`python -m tests.docs.reference` writes it."""
    assert PAGES[name]() == text(name)


def test_every_command_that_is_not_hidden_has_a_section() -> None:
    shown = {one.name for one in app.registered_commands if not one.hidden}
    shown |= {"runs list"}
    assert set(re.findall(r"^## raffed (.+)$", text("cli.md"), re.MULTILINE)) == shown


def test_every_key_of_a_section_has_a_row_with_a_meaning() -> None:
    page = text("configuration.md")
    for section, kind in SECTIONS.items():
        part = page.partition(f"## [{section}]")[2].partition("\n## ")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", part, re.MULTILINE))
        assert set(rows) == set(declarations(kind))
        assert all(rows.values())


def test_every_split_model_and_data_set_is_on_its_page() -> None:
    for page, names in (("splits.md", SPLITS), ("models.md", MODELS)):
        assert set(re.findall(r"^## (\S+)$", text(page), re.MULTILINE)) >= {
            one.name for one in names.values()
        }
    assert [name for name in DATASETS if f"\n| `{name}` |" not in text("datasets.md")] == []


def test_every_public_name_is_on_the_python_page_once() -> None:
    found = re.findall(r"^::: raffed\.(\w+)$", text("python.md"), re.MULTILINE)
    assert sorted(found) == sorted(name for name in raffed.__all__ if name != "__version__")


def test_markup_of_colours_is_left_out_and_brackets_stay() -> None:
    assert plain("A number \\[0, 1] [dim](0.5)[/dim]") == "A number [0, 1] (0.5)"

"""What pages show as the output of a command has the shape of what the command prints today.

Scores and times are those of one machine and are not compared. Everything else is: titles, rows, and what was
tried and chosen. `--plan` lists the trials without training.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from raffed.analysis.sweeps import Sweep, tuning_table

from tests.cli.conftest import Cli, cli
from tests.docs.code_blocks import BLOCK, PAGES, ROOT

__all__ = ["cli"]  # a fixture
DOCTOR = "docs/running.md"  # tests/cli/test_doctor.py compares the lines of the measurements there
RULE = "─"


class Shown(NamedTuple):
    """A block of a page that shows what a command printed, and that command."""

    page: str
    command: str
    lines: list[str]

    @property
    def titles(self) -> list[str]:
        return columns(self.lines[0])

    @property
    def rows(self) -> list[dict[str, str]]:
        return [dict(zip(self.titles, columns(line), strict=True)) for line in self.lines[2:]]


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def outputs() -> list[Shown]:
    """The blocks of all pages that begin with a command or with the titles of a table of methods."""
    found = []
    for page in PAGES:
        command = ""
        for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            first, *rest = text.splitlines()
            if language == "sh" and first.startswith("raffed tune") and not command:
                command = first
            if language == "text" and first.startswith("$ "):
                found.append(Shown(page, first[2:], rest))
            elif language == "text" and re.match(r"Method\s{2,}", first):
                found.append(Shown(page, command, [first, *rest]))
    return found


SWEEPS = [one for one in outputs() if one.command.startswith("raffed tune")]


def planned(cli: Cli, one: Shown) -> Mapping[str, Sequence[str]]:
    """Map each method to the settings that the command would try."""
    done = cli(*shlex.split(one.command)[1:], "--plan", "--json")
    assert done.code == 0, done.err
    [plan] = done.events
    settings: dict[str, list[str]] = {}
    for row in plan["rows"]:
        settings.setdefault(row["method"], []).append(row["setting"])
    return settings


def test_every_output_on_a_page_is_compared_with_what_its_command_prints() -> None:
    assert [one.page for one in outputs() if one not in SWEEPS] == [DOCTOR]
    assert len(SWEEPS) == 1


@pytest.mark.parametrize("one", SWEEPS, ids=lambda one: one.page)
def test_the_table_of_a_search_on_a_page_has_the_titles_of_today(one: Shown, tmp_path: Path) -> None:
    table = tuning_table(Sweep(tmp_path, {"request": {"select": "global"}, "methods": {}}))
    assert one.titles == list(table.titles)
    assert set(one.lines[1]) == {RULE}


@pytest.mark.parametrize("one", SWEEPS, ids=lambda one: one.page)
def test_the_table_of_a_search_on_a_page_has_the_trials_that_its_command_makes(one: Shown, cli: Cli) -> None:
    settings = planned(cli, one)
    words = shlex.split(one.command)
    rounds = int(words[words.index("--rounds") + 1])
    assert [row["Method"] for row in one.rows] == list(settings)
    for row in one.rows:
        tried = settings[row["Method"]]
        assert row["Trials"] == f"{len(tried)}/{len(tried)}"
        assert int(row["Rounds to choose"]) == len(tried) * rounds
        assert row["Chosen"].replace(" ", "") in tried
        assert (row["Personalization %"] == "–") == ("--local-test" not in words)

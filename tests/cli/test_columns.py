"""Tables on a terminal of 80 columns: no word of a header is broken, and no line is longer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from raffed.cli import tables
from raffed.cli.columns import fitted
from tests.cli.conftest import Cli

LISTINGS = ("methods", "datasets", "splits", "models", "metrics", "reproduce --list", "doctor", "cache list")
DETAILS = ("methods fedmr", "models mlp", "datasets digits", "metrics accuracy", "splits dirichlet:10:0.5")
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The headers of every table that is shown on a terminal of 80 columns."""
    seen: list[Sequence[str]] = []

    def noted(
        names: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Sequence[str]
    ) -> list[list[tuple[int, int]]]:
        seen.append(names)
        return fitted(names, rows, width, numbers)

    monkeypatch.setattr(tables, "fitted", noted)
    monkeypatch.setattr(tables, "console", lambda: Console(width=80, highlight=False))
    return seen


def check(out: str, titles: Sequence[Sequence[str]]) -> None:
    lines = [ANSI.sub("", line).rstrip() for line in out.splitlines()]
    known = {word for names in titles for name in names for word in name.split()}
    rules = [at for at, line in enumerate(lines) if set(line.strip()) == {"─"}]
    assert len(rules) >= len(titles)
    for at in rules:
        assert cell_len(lines[at]) <= 80
        above = at - 1
        while above >= 0 and lines[above] and not lines[above].endswith("."):
            assert set(lines[above].split()) <= known, lines[above]
            above -= 1


@pytest.mark.parametrize("words", [*LISTINGS, *DETAILS])
def test_no_listing_breaks_a_word_of_its_header(
    cli: Cli, titles: list[Sequence[str]], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path))
    done = cli(*words.split())
    assert done.code in (0, 1), done.err  # doctor may find something
    check(done.out, titles)


def test_lists_of_runs_and_reports_break_no_word_of_their_headers(
    cli: Cli, titles: list[Sequence[str]], runs: Path, tmp_path: Path
) -> None:
    check(cli("runs", "list", runs).out, titles)
    titles.clear()
    check(cli("report", runs, "--out", tmp_path / "report").out, titles)
    assert len(titles) == 1


def test_a_column_is_never_narrower_than_the_words_of_its_header_and_its_numbers() -> None:
    found = fitted(("name", "clients per round", "value"), [("a", "1", "123,456,789")], 30, ["value"])
    widths = {at: width for table in found for at, width in table}
    assert widths[0] >= len("name")
    assert widths[1] >= len("clients")
    assert widths[2] >= len("123,456,789")


def test_columns_that_do_not_fit_follow_in_a_second_table_that_begins_with_the_first_column() -> None:
    names = ("method", *(f"measure{number}" for number in range(9)))
    found = fitted(names, [("fedavg", *"123456789")], 80)
    assert [[at for at, _ in table] for table in found] == [
        [0, 1, 2, 3, 4, 5, 6],
        [0, 7, 8, 9],
    ]  # 6 + 6·8 + 6·3 + 2 = 74


def test_a_table_with_room_is_as_wide_as_its_contents() -> None:
    assert fitted(("a", "b"), [("one two", "three")], 80) == [[(0, 7), (1, 5)]]


def test_a_word_wider_than_the_terminal_gets_what_room_there_is() -> None:
    [[_, (at, width)]] = fitted(("a", "b" * 100), [("x", "y")], 80)
    assert (at, width) == (1, 80 - 2 - 3 - 1)

"""Tables on a terminal of 80 columns: no word of a header is broken, and no line is longer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from raffed.cli import tables
from raffed.cli.tables import fitted, show_item, show_summary
from tests.cli.conftest import Cli

LISTINGS = ("methods", "datasets", "splits", "models", "metrics", "reproduce --list", "doctor")
DETAILS = ("methods fedmr", "models mlp", "datasets digits", "metrics accuracy", "splits dirichlet:10:0.5")
ROW = {
    **{"Data set": "digits", "Partition": "iid:4", "Seeds": "1", "Rounds": "2", "State": "finished"},
    "Aggregation, last %": "90.00",
}
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


@pytest.mark.more
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


def test_reasons_against_a_comparison_stand_below_a_narrow_table(
    titles: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """They made a row taller than a screen. A reason that several rows have is printed once."""
    why = "not comparable: the network differs (lenet / mlp); the second value is that of ditto name=mlp"
    runs = [
        {"Method": name, **ROW, "Comparable": text} for name, text in [("a", "yes"), ("b", why), ("b", why)]
    ]
    show_summary("report.html", runs)
    out = capsys.readouterr().out
    check(out, titles)
    assert out.count("the network differs") == 1
    above, _, below = out.partition("agg:")
    assert [line.split() for line in above.splitlines() if line.split()[:1] == ["b"]] == [
        ["b", "90.00", "not", "comparable"]
    ] * 2
    assert f"b: {why}" in below


def test_a_reason_that_many_rows_have_is_one_line_with_the_first_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "not comparable: the network differs (lenet / mlp); the second value is that of ditto name=mlp"
    show_summary("report.html", [{"Method": f"m{number}", **ROW, "Comparable": why} for number in range(60)])
    below = capsys.readouterr().out.partition("agg:")[2].splitlines()
    assert below[1:] == [f"m0, m1, m2, m3 and 56 more: {why}", "report: report.html"]


def test_reasons_of_a_reproduction_stand_below_its_table_each_once(
    titles: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    why = "not comparable: local.lr differs (0.02 / 0.03); the second value is that of FedAvg"
    rows = [
        {"Method": method, "Column": column, "Ours": "–", "Verdict": verdict, "Runs left out": said}
        for method, column, verdict, said in [
            ("FedAvg", "iid", "not run", "–"),
            ("FedProx", "iid", "not comparable", why),
            ("FedProx", "p8c3", "not comparable", why),
        ]
    ]
    show_item("own/table", rows, {"Method", "Column", "Verdict", "Runs left out"})
    out = capsys.readouterr().out
    check(out, titles)
    assert out.count("local.lr differs") == 1
    assert f"FedProx · iid, FedProx · p8c3: {why}" in out
    assert "not comparable   not comparable" in out


def test_a_note_beside_yes_stands_below_the_table_too(
    titles: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    note = "yes; local.lr differs (0.11 / 0.21): it was chosen for each method by the sweep"
    runs = [{"Method": name, **ROW, "Comparable": text} for name, text in [("a", "yes"), ("b", note)]]
    show_summary("report.html", runs)
    out = capsys.readouterr().out
    check(out, titles)
    assert [line.split() for line in out.splitlines() if line.split()[:1] == ["b"]] == [
        ["b", "90.00", "yes,", "with", "a", "note"]
    ]
    assert f"b: {note}" in out

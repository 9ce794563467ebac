"""A hostile name goes through every table and page and is nowhere obeyed."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary, to_html, to_latex, to_markdown, to_text
from raffed.analysis.render.cells import for_csv, for_latex, for_markdown
from raffed.analysis.render.page import script
from raffed.analysis.report import write_report

from raffed.cli.tables import show, show_pairs
from raffed.results.text import visible

WriteRun = Callable[..., Path]
HOSTILE = [
    '=HYPERLINK("http://evil")',
    "+1+cmd|'/C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    " =1+1",
    "＝1+1",
    "a;=1+1",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "a\u202egnp",
    "[bold red]x[/]",
    "[link=http://evil]x[/link]",
    "<script>alert(1)</script>",
    "\\input{/etc/passwd}",
    "[12pt] x",
    "*x",
    "a & b \\\\ \\hline",
    "$x$ % c",
    "![x](http://evil)",
    "a|b\n|c",
    "`x`",
    "x\x00y",
]


def obeyed(text: str) -> list[str]:
    """Characters of a terminal's output that are commands."""
    return [letter for letter in text if letter != "\n" and not letter.isprintable()]


@pytest.mark.parametrize("name", HOSTILE)
def test_one_function_a_format_takes_any_name(name: str) -> None:
    assert obeyed(visible(name)) == []
    assert for_csv(name).lstrip()[0] not in "=+-@＝\t\r"
    assert "\n" not in for_csv(name)
    assert ";=" not in for_csv(name)
    plain = re.sub(r"\\[\\`*_\[\]|~$/.]", "", for_markdown(name))
    assert not set("`*[]|$<>\n") & set(plain)
    assert "://" not in plain
    latex = for_latex(name)
    assert latex[0] not in "[*"
    assert not re.search(r"(?<!\\)[&%#_]|\\input|\\hline|\n", latex)


@pytest.mark.parametrize("number", ["1", "-1.5", "+3e-05", "-0.25"])
def test_a_number_stays_a_number_in_csv(number: str) -> None:
    assert for_csv(number) == number


def test_every_character_that_a_terminal_obeys_is_shown_as_its_code_and_no_other_is() -> None:
    letters = [chr(code) for code in (*range(0x3000), *range(0xFE00, 0x10000), 0x1F600, 0xE0001, 0xD800)]
    assert obeyed(visible("".join(letters))) == []
    changed = [letter for letter in letters if visible(letter) != letter]
    assert {*changed} == {*obeyed("".join(letters)), "\n"}


@pytest.mark.more
def test_a_report_of_hostile_names_obeys_none(tmp_path: Path, write_run: WriteRun) -> None:
    # Drawn text needs a font that has its letters
    names = [name for name in HOSTILE if name.isascii() or not name.isprintable()]
    for i, name in enumerate(names):
        write_run(f"r{i}", [0.5], method=name, split=f"p{name}", dataset=name, state=name)
    runs = load_runs([tmp_path])
    table = summary(runs)
    assert obeyed(to_text(table)) == []
    write_report([tmp_path], tmp_path / "out")
    with open(tmp_path / "out" / "summary.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(names)
    for row in rows:
        assert all(
            row[name].lstrip()[:1] not in tuple("=+-@＝\t\r")
            for name in ("method", "dataset", "partition", "state")
        )
        assert float(row["accuracy_last"]) == 0.5
    whole = (tmp_path / "out" / "report.html").read_text(encoding="utf-8").replace(f"<script>{script()}", "")
    pages = (whole.replace('<script type="application/json">', ""), to_html(table))
    for page in pages:
        assert "<script" not in page
        assert obeyed(page.replace("\t", "")) == []
    assert obeyed(to_markdown(table)) == []
    assert "\\input{" not in to_latex(table)
    assert len(to_markdown(table).splitlines()) == len(names) + 2


def test_tables_of_the_terminal_read_no_markup_and_pass_no_escape_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in HOSTILE:
        show((name, "b"), [(name, "x")], title=name)
        show_pairs([(name, name)], title=name)
        said = capsys.readouterr().out
        assert obeyed(said) == []
        if name.startswith("[bold"):
            assert said.count("[bold red]x[/]") == 6


def test_an_error_s_message_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from raffed.cli import main

    (tmp_path / "run.json").write_text(json.dumps({"run_id": "x", "hashes": {"\x1b[2J": 1}}))
    for argv in (
        ["verify", str(tmp_path)],
        ["report", f"{tmp_path}/\x1b[2J", "--out", str(tmp_path / "out")],
        ["resume", f"{tmp_path}/\x1b]0;x\x07"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2, sys.argv
        said = capsys.readouterr()
        assert obeyed(said.err + said.out) == []

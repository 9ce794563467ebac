"""Every code block of README and docs is run by a test, or tests/docs/code_blocks.py says why not.

The fast tests read every command and program. The slow test runs those that no other test runs, page by page,
in a folder of their own: in one process, with two seeds instead of five, and with one local epoch and four
rounds where the page names no number.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import raffed
from raffed.cli.app import app
from raffed.config.toml import parse_toml
from tests.docs.code_blocks import BLOCK, LANGUAGES, NOT_RUN, OWN_TESTS, PAGES, ROOT, Piece, pieces

EVERY = [piece for page in PAGES for piece in pieces(page)]
RUN_HERE = sorted({piece.page for piece in EVERY if piece.page not in OWN_TESTS and piece.reason is None})
SHORT = {  # options that make a command cheap, unless it has them
    "run": {"--execution": "serial", "--epochs": "1", "--rounds": "4"},
    "compare": {"--execution": "serial", "--epochs": "1", "--rounds": "4"},
    "tune": {"--epochs": "1", "--trials": "2", "--rounds": "4"},
}
TREE = typer.main.get_command(app)
CHEAP = "runtime=raffed.Runtime(execution='serial'), local=raffed.Local(epochs=1), "


def test_a_block_is_run_or_has_a_reason_and_no_reason_is_idle() -> None:
    odd = [one for one in EVERY if one.language == "sh" and one.reason is None and one.text[:7] != "raffed "]
    assert odd == []
    used = {piece.reason for piece in EVERY}
    assert set(NOT_RUN.values()) <= used
    for page, head in NOT_RUN:
        assert any(one.text.startswith(head) and page in ("", one.page) for one in EVERY), head


def test_every_block_says_its_language_and_the_tests_that_are_named_name_their_page() -> None:
    for page in PAGES:
        found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        assert {language for language, _ in found} <= LANGUAGES, page
    for page, test in OWN_TESTS.items():
        assert Path(page).name in (ROOT / "tests" / "docs" / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted({one.page for one in EVERY if one.language == "sh"}))
def test_every_command_of_a_page_can_be_read(page: str) -> None:
    """Its name and options exist, and its values have the right types."""
    for piece in pieces(page):
        if piece.language != "sh" or not piece.text.startswith("raffed ") or "|" in piece.text:
            continue
        name, *words = shlex.split(piece.text)[1:]
        TREE.commands[name].make_context(name, list(words)).close()


@pytest.mark.parametrize("piece", [one for one in EVERY if one.language != "sh"], ids=lambda one: one.page)
def test_every_program_and_file_can_be_read(piece: Piece) -> None:
    if piece.language == "toml":
        assert parse_toml(piece.text, piece.page)
    else:
        compile(piece.text, piece.page, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_HERE)
def test_what_a_page_shows_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    known: dict[str, object] = {"raffed": raffed, "__name__": "__main__"}
    try:
        for piece in pieces(page):
            if piece.text.startswith("cd "):
                monkeypatch.chdir(piece.text.split()[1])
                monkeypatch.syspath_prepend(str(Path.cwd()))
            if piece.reason is None:
                _execute(piece, known)
    finally:
        _forget(tmp_path)


def _execute(piece: Piece, known: dict[str, object]) -> None:
    text = piece.text.replace("--seeds 5", "--seeds 2").replace("seeds=5", "seeds=2")
    if piece.language == "sh":
        words = itertools.takewhile(lambda word: word != "|", shlex.split(text)[1:])  # without what reads it
        done = CliRunner().invoke(app, _short(list(words)))
        assert done.exit_code == 0, f"{piece.text}\n{done.output}"
    elif piece.language == "python":
        if piece.file:
            Path(piece.file).write_text(piece.text, encoding="utf-8")
        text = text if "runtime=" in text else text.replace("RunConfig(", f"RunConfig({CHEAP}")
        exec(compile(text, piece.page, "exec"), known)


def _short(words: list[str]) -> list[str]:
    missing = {name: value for name, value in SHORT.get(words[0], {}).items() if name not in words}
    resumed = "--resume" in words or any(word.endswith(".toml") for word in words)
    return words if resumed else [*words, *(word for pair in missing.items() for word in pair)]


def _forget(folder: Path) -> None:
    """Forget modules that were imported from a folder."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]

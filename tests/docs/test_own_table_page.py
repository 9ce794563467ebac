"""docs/own_table.md: its table runs as it stands, gets verdicts, and its program prints a number."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raffed.cli.app import app
from raffed.tables.catalogue import own_item
from raffed.tables.items import MEASURES

PAGE = (Path(__file__).parents[2] / "docs" / "own_table.md").read_text(encoding="utf-8")
TABLE, PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[COMMANDS] = [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("items.py").write_text(TABLE, encoding="utf-8")
    return tmp_path


def test_its_table_has_four_cells_and_two_printed_numbers() -> None:
    item = own_item("./items.py:TABLE", None)
    assert [cell.place for cell in item.cells] == [
        ("FedAvg", "digits"),
        ("FedProx", "digits"),
        ("FedAvg", "digits, iid"),
        ("FedProx", "digits, iid"),
    ]
    assert [cell.printed.get("value") for cell in item.cells] == [None, None, "92.5", "92.7"]


def test_every_measure_that_it_names_exists() -> None:
    line = PAGE.partition("- **`measure`**")[2].partition("\n- ")[0]
    named = re.findall(r"`(\w+_\w+)`", line)
    assert len(named) >= 5
    assert set(named) <= set(MEASURES)


@pytest.mark.slow
def test_its_commands_run_as_they_stand_and_give_verdicts(folder: Path) -> None:
    for line in COMMANDS:
        done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    table = (folder / "tables" / "own" / "prox" / "full" / "table.md").read_text()
    assert "not printed" in table
    assert "Skew costs accuracy" in table


def test_its_program_prints_the_error_of_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(PROGRAM, "own_table.md", "exec"), {})
    assert float(capsys.readouterr().out) >= 0

"""The pages on own data and own tables, and on programs that read JSON: what they show runs as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import raffed
from raffed.cli.app import app
from raffed.tables.catalogue import own_item
from raffed.tables.items import MEASURES

DOCS = Path(__file__).parents[2] / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text(page), re.DOTALL)


def command(line: str, *more: str) -> None:
    done = CliRunner().invoke(app, [*shlex.split(line)[1:], *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_the_commands_and_programs_on_own_data_run_and_learn(capsys: pytest.CaptureFixture[str]) -> None:
    """Who is ill has a faster pulse and a fever in the table that the page writes."""
    draws = np.random.RandomState(0)
    for label, number in ((label, number) for label in ("cat", "dog") for number in range(10)):
        images = Path("images") / label
        images.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (9, 8, 3)).astype(np.uint8)).save(images / f"{number}.png")
    table, learns, names = blocks("own_data.md", "python")
    exec(compile(table, "own_data.md", "exec"), {})
    shown, run, pictures = [line for block in blocks("own_data.md", "sh") for line in block.splitlines()]
    command(pictures, "--execution", "serial")
    command(shown)
    command(run, "--execution", "serial")
    capsys.readouterr()
    exec(compile(names, "own_data.md", "exec"), {})
    assert capsys.readouterr().out == "['well', 'ill']\n"
    exec(compile(learns, "own_data.md", "exec"), {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.8


@pytest.mark.more
def test_the_program_that_compares_two_methods_reads_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Its method `plain` is FedAvg, so its first run has FedAvg's accuracy to the last bit."""
    mine, program = blocks("programs.md", "python")
    Path("mine.py").write_text(mine, encoding="utf-8")
    exec(compile(program, "programs.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    runs = [line.split() for line in printed[:4]]
    assert sorted((method.rpartition(":")[2], seed) for method, seed, _ in runs) == [
        ("plain", "0"),
        ("plain", "1"),
        ("uniform", "0"),
        ("uniform", "1"),
    ]
    assert len(printed) == 5
    [plain] = [accuracy for method, seed, accuracy in runs if method.endswith("plain") and seed == "0"]
    config = raffed.RunConfig(
        data=raffed.Data("digits", "dirichlet:10:0.3"),
        local=raffed.Local(epochs=1),
        federation=raffed.Federation(rounds=4),
        runtime=raffed.Runtime(execution="serial"),
    )
    assert raffed.run(config, out="alone").accuracy == float(plain)


def test_the_page_on_own_tables_has_cells_and_measures(capsys: pytest.CaptureFixture[str]) -> None:
    table, program = blocks("own_table.md", "python")
    Path("items.py").write_text(table, encoding="utf-8")
    item = own_item("./items.py:TABLE", None)
    printed = [(*cell.place, cell.printed.get("value")) for cell in item.cells]
    assert printed == [
        ("FedAvg", "digits", None),
        ("FedProx", "digits", None),
        ("FedAvg", "digits, iid", "92.5"),
        ("FedProx", "digits, iid", "92.7"),
    ]
    line = text("own_table.md").partition("- **`measure`**")[2].partition("\n- ")[0]
    named = re.findall(r"`(\w+_\w+)`", line)
    assert len(named) >= 5
    assert set(named) <= set(MEASURES)
    exec(compile(program, "own_table.md", "exec"), {})
    assert float(capsys.readouterr().out) >= 0

"""docs/own_data.md: its commands and its program run as they stand, on files such as it describes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from raffed.cli.app import app
from raffed.data.importers.reference import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "own_data.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    draws = np.random.RandomState(0)
    rows = [f"{draws.normal() + n % 2},{('red', 'white')[n % 2]},{('a', 'b')[n % 3 > 0]}" for n in range(60)]
    Path("wine.csv").write_text("acid,kind,site\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for label, number in ((label, number) for label in ("cat", "dog") for number in range(10)):
        folder = Path("images") / label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draws.randint(0, 256, (9, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_every_command_of_the_page_runs() -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 2
    for line in commands:
        words = [*shlex.split(line)[1:], "--execution", "serial"]
        found = CliRunner().invoke(app, words, catch_exceptions=False)
        assert found.exit_code == 0, found.output


def test_the_program_of_the_page_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    program, _ = blocks("python")
    exec(compile(program, str(PAGE), "exec"), {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.8


def test_the_model_of_the_page_names_the_classes_of_new_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Red wines have less acid than white ones in the table that this test writes."""
    line = blocks("sh")[0].splitlines()[0].replace("--rounds 5", "--rounds 20")
    found = CliRunner().invoke(app, [*shlex.split(line)[1:], "--execution", "serial"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    capsys.readouterr()
    _, program = blocks("python")
    exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "['red', 'white']\n"


def test_the_page_names_every_kind_of_reference_and_its_options() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"`{kind}:" in text
    for option in ("label", "client", "features", "drop", "categorical", "test", "seed", "size", "colour"):
        assert f"`{option}`" in text

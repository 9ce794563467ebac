"""The pages on splits, losses and metrics of one's own: their files and commands run as they stand."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raffed.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
FILES = {"own_split.md": "splits.py", "own_loss.md": "losses.py", "metrics.md": "mymetrics.py"}


@pytest.mark.parametrize("page", FILES)
def test_every_command_of_a_page_runs_on_the_file_that_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path(FILES[page]).write_text(program, encoding="utf-8")
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]
    assert commands
    for line in commands:
        words = shlex.split(line)[1:]
        extra = ["--execution", "serial", "--epochs", "1"] if words[0] == "run" else []
        found = CliRunner().invoke(app, [*words, *extra], catch_exceptions=False)
        assert found.exit_code == 0, found.output

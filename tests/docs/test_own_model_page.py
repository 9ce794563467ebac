"""The blocks of docs/own_model.md can be run as they stand, one after the other."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from raffed.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "own_model.md"
BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    models = {}
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "sh":
            done = CliRunner().invoke(app, shlex.split(text)[1:])
            assert done.exit_code == 0, done.output
            continue
        name = text.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(text, encoding="utf-8")
        models[name] = runpy.run_path(name).get("model")
    sys.modules.pop("net", None)
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(models["load.py"].eval()(x), models["use.py"](x))

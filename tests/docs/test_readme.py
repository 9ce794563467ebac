"""README says what the code does."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import raffed
from raffed import Data, Federation, RunConfig, Runtime
from raffed.cli.app import EPILOG
from raffed.data.datasets import load_dataset
from raffed.methods import METHODS
from raffed.results import read_run
from tests.docs.readme import PLACE, README, table, written
from tests.warm import python


def test_readme_s_table_of_methods_is_the_one_made_from_the_code() -> None:
    assert PLACE.search(README.read_text(encoding="utf-8")) is not None
    assert README.read_text(encoding="utf-8") == written()
    assert table().count("\n") == len(METHODS) + 2


def test_the_division_that_readme_writes_is_one_that_a_run_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients with even and with odd numerals, a fifth of either kept for its own tests."""
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    [block] = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ".save(" in one]
    exec(compile(block, str(README), "exec"), {})
    config = RunConfig(
        data=Data(split="file:parity.npz"), federation=Federation(1), runtime=Runtime(execution="serial")
    )
    assert not math.isnan(raffed.run(config).personalization)
    stored = np.load("parity.npz")
    assert [name for name in stored.files if f"`{name}`" not in text] == []
    parities = [
        np.unique(load_dataset("digits").y[own] % 2).tolist()
        for own in np.split(stored["train_indices"], np.cumsum(stored["train_lengths"])[:-1])
    ]
    assert parities == [[0], [1]]


def test_the_method_that_readme_writes_runs_by_reference_and_from_its_own_script(tmp_path: Path) -> None:
    """Both ways make one run: the same weights. The example is 25 lines, without blank ones."""
    text = README.read_text(encoding="utf-8")
    [block] = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "@raffed.method" in one]
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 25
    short = "data=raffed.Data(split='p4c5'), runtime=raffed.Runtime(execution='serial'), "
    short += "federation=raffed.Federation(1), local=raffed.Local(epochs=1)"
    script = block.replace("runs/prox", "prox").replace('{"mu": 0.1})', '{"mu": 0.1}, ' + short + ")")
    (tmp_path / "prox.py").write_text(script, encoding="utf-8")
    said = ["--set", "mu=0.1", "--split", "p4c5", "--execution", "serial", "--rounds", "1", "--epochs", "1"]
    run = ["-m", "raffed", "run", "--method", "./prox.py:myprox", *said, "--out", "a"]
    for words in (["prox.py"], run):
        done = python(words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = (read_run(tmp_path / name) for name in ("prox", "a"))
    assert one["hashes"] == other["hashes"]
    assert one["identity"] == other["identity"]


def test_readme_states_the_exit_codes_of_help() -> None:
    found = README.read_text(encoding="utf-8").partition("Exit codes: ")[2].partition("\n\n")[0]
    stated = re.findall(r"\b(\d+)\b", EPILOG.partition("Exit codes")[2])
    assert stated == ["0", "1", "2", "129", "130", "143"]
    assert re.findall(r"\b(\d+)\b", found) == stated

"""`--on-round`: a function of one's own receives the event of each round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import raffed
from raffed.api.running import callbacks
from raffed.errors import UsageError
from tests.cli.conftest import Cli

QUICK = ("--split", "p4c3", "--samples", "200", "--execution", "serial", "--rounds", "3")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "watch.py"
    made.write_text(
        "seen = []\n\n\ndef note(event):\n    seen.append(event.round)\n\n\n"
        "def fails(event):\n    if event.round == 2:\n        raise KeyError('no such thing')\n"
    )
    return made


def test_the_function_receives_each_round_and_changes_no_bit(cli: Cli, file: Path) -> None:
    assert cli("run", *QUICK, "--on-round", "./watch.py:note", "--out", "a").code == 0
    assert cli("run", *QUICK, "--out", "b").code == 0
    from raffed.own import resolve

    assert resolve.load("./watch.py:seen") == [1, 2, 3]
    one, other = (json.loads((file.parent / name / "run.json").read_text()) for name in "ab")
    assert one["hashes"]["weights"] == other["hashes"]["weights"]
    assert one["identity"] == other["identity"]


def test_an_error_in_it_names_its_line_and_leaves_a_run_that_can_be_resumed(cli: Cli, file: Path) -> None:
    done = cli("run", *QUICK, "--on-round", "./watch.py:fails", "--out", "a")
    assert done.code == 1
    assert f"{file}:10: KeyError: 'no such thing'" in done.err
    assert raffed.resume("a").state == "finished"


def test_what_is_no_function_is_refused_before_the_run_begins(cli: Cli, file: Path) -> None:
    done = cli("run", *QUICK, "--on-round", "./watch.py:seen", "--out", "a")
    assert (done.code, (file.parent / "a").exists()) == (2, False)
    assert "it must be a function of a RoundEvent" in done.err
    with pytest.raises(UsageError, match="has no 'nosuch'"):
        callbacks(["./watch.py:nosuch"])

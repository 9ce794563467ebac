"""A name that is too long for the file system is refused in one line, by every command that takes a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Cli

LONG = "a" * 300
SERIAL = ["--execution", "serial", "--rounds", "1"]
COMMANDS = {
    "run to it": ["run", *QUICK, "--rounds", "1", "--out", LONG],
    "run a file": ["run", f"{LONG}.toml", *SERIAL, "--out", "out"],
    "begin from it": ["run", *QUICK, "--rounds", "1", "--out", "out", "--init", f"{LONG}.pt"],
    "data": ["run", "--dataset", f"./{LONG}.npz", "--split", "iid:3", *SERIAL, "--out", "out"],
    "a split's file": ["run", "--split", f"file:{LONG}.npz", *SERIAL, "--out", "out"],
    "a method": ["run", *QUICK, "--method", f"./{LONG}.py:a", "--rounds", "1", "--out", "out"],
    "after a round": ["run", *QUICK, "--on-round", f"./{LONG}.py:a", "--rounds", "1", "--out", "out"],
    "compare": ["compare", "--method", "fedavg", *QUICK, "--rounds", "1", "--out", LONG],
    "tune": ["tune", "--method", "fedavg", "--split", "p4c5", *SERIAL, "--out", LONG],
    "continue a sweep": ["tune", "--resume", "--out", LONG],
    "resume": ["resume", LONG],
    "verify": ["verify", LONG],
    "report of it": ["report", LONG, "--out", "out"],
    "export of it": ["export", LONG, "--out", "out.pt"],
    "runs list": ["runs", "list", LONG],
    "new": ["new", LONG],
    "check": ["check", f"./{LONG}.py:a"],
    "submit": ["submit", "--dry-run", "run", f"{LONG}.toml", "--out", "/out"],
    "submit a folder": ["submit", "--dry-run", "--working-dir", LONG, "run", "--out", "/shared/out"],
    "reproduce": ["reproduce", "fedmr/table6", "--scale", "smoke", "--out", LONG],
}
SLOW = {"reproduce", "a split's file", "verify", "run to it"}  # they load more before they look at the name


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in COMMANDS]
)
def test_a_name_that_is_too_long_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(*COMMANDS[name])
    assert done.code == 2
    [line] = done.err.splitlines()
    assert line.startswith("raffed: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["export", "--out", f"{LONG}.pt"], ["report", "--out", LONG]])
def test_a_result_whose_name_is_too_long_is_refused_in_one_line(
    cli: Cli, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(command[0], finished, *command[1:])
    assert done.code == 2
    [line] = done.err.splitlines()
    assert "shorter one" in line
    assert list(tmp_path.iterdir()) == []

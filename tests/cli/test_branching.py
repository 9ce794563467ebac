"""`raffed extend` and `raffed fork` from the outside: exit codes, streams, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.results import read_run
from tests.cli.conftest import QUICK, Cli


@pytest.fixture
def short(cli: Cli, tmp_path: Path) -> Path:
    out = tmp_path / "short"
    assert cli("run", "--rounds", 2, "--quiet", *QUICK, "--out", out).code == 0
    return out


def test_extend_goes_on_in_the_run_s_folder(cli: Cli, short: Path) -> None:
    done = cli("extend", short, "--rounds", 3, "--json")
    assert (done.code, done.err) == (0, "")
    assert [event["round"] for event in done.events[:-1]] == [3]
    assert read_run(short)["rounds_done"] == 3


def test_extend_to_fewer_rounds_is_refused(cli: Cli, short: Path) -> None:
    done = cli("extend", short, "--rounds", 2)
    assert done.code == 2
    assert done.err.strip().endswith("has 2; give a larger number")


def test_fork_takes_the_options_of_run(cli: Cli, short: Path, tmp_path: Path) -> None:
    out = tmp_path / "fork"
    done = cli("fork", short, "--at", 1, "--lr", 0.01, "--rounds", 3, "--quiet", "--out", out)
    assert (done.code, done.out.strip()) == (0, str(out))
    assert read_run(out)["config"]["local"]["lr"] == 0.01
    assert read_run(short)["rounds_done"] == 2


def test_fork_into_a_folder_that_is_not_free_is_refused(cli: Cli, short: Path) -> None:
    done = cli("fork", short, "--rounds", 3, "--out", short)
    assert done.code == 2
    assert "already holds a run" in done.err

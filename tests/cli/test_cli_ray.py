"""The command line with actors: the same signals, exit codes and bits as without."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cli.conftest import Cli, shell
from tests.live_output import next_line

SPLIT = ["--method", "map", "--split", "p4c5", "--epochs", "1", "--local-test", "0.2"]


@pytest.mark.slow
def test_actors_stopped_by_sigterm_resume_to_serial_bits(cli: Cli, tmp_path: Path, finished: Path) -> None:
    out = tmp_path / "run"
    asked = ["run", *SPLIT, "--rounds", "5", "--checkpoint-every", "2", "--json", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "raffed", *asked], stdout=subprocess.PIPE, text=True
    ) as process:
        assert '"round": 1' in next_line(process)
        process.terminate()
        rest, _ = process.communicate(timeout=120)
    stopped = read_run(out)["rounds_done"] < 5
    assert process.returncode == (143 if stopped else 0)
    assert ('"stopped"' if stopped else '"finished"') in rest.splitlines()[-1]
    done = cli("resume", out, "--execution", "serial", "--json")
    assert done.events[-1]["hashes"] == read_run(finished)["hashes"]


@pytest.mark.slow
def test_divergence_in_an_actor_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    done = shell("run", *SPLIT, "--lr", "1e3", "--rounds", 3, "--json", "--out", tmp_path / "run")
    assert done.returncode == 1
    # By its loss, or its weights
    named = r"raffed: MAP(: the training loss of client \d+ in round 1 is|, round 1, client \d+)"
    assert re.match(named, done.stderr)
    assert done.stderr.count("\n") == 1
    assert read_run(tmp_path / "run")["state"] == "failed"

"""Streams that are closed, broken or full: a list that is lost is a failure, and a run can be resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raffed.results.runfile import read_run

RAFFED = f"{sys.executable} -m raffed"
RUN = f"{RAFFED} run --method fedavg --rounds 2 --epochs 1 --split p4c5 --execution serial --out"
SLOW = pytest.mark.slow


def bash(line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.parametrize(
    ("streams", "goes_on"),
    [
        (">&- 2>&- <&-", True),
        *(
            pytest.param(one, False, marks=SLOW)
            for one in ("| head -1", "--json | head -1", "--json >/dev/full")
        ),
    ],
)
def test_a_run_whose_streams_are_lost_goes_on_or_ends_in_order_and_resumes(
    streams: str, goes_on: bool, tmp_path: Path
) -> None:
    done = bash(f"{RUN} {tmp_path}/run {streams}")
    assert "Traceback" not in done.stderr
    if goes_on:
        assert done.returncode == 0
    else:
        assert bash(f"{RAFFED} resume {tmp_path}/run").returncode == 0
    assert read_run(tmp_path / "run")["state"] == "finished"


@pytest.mark.more
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [(">/dev/full", 1, "no space left"), ("| true", 1, ""), (">&-", 0, "")],
)
def test_a_list_that_cannot_be_shown_is_a_failure_in_one_line(streams: str, code: int, said: str) -> None:
    done = bash(f"{RAFFED} splits {streams}")
    assert done.returncode == code
    assert said in done.stderr.lower()
    assert done.stderr.count("\n") == bool(said)

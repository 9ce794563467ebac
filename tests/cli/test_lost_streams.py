"""Streams that are closed, broken or full: a display that is lost ends no run, and a list that is lost is
a failure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raffed.results import read_run

RAFFED = f"{sys.executable} -m raffed"
RUN = f"{RAFFED} run --method fedavg --rounds 2 --epochs 1 --split p4c5 --execution serial --out"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", line]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.parametrize("streams", [">&- 2>&- <&-", pytest.param(">/dev/full", marks=pytest.mark.slow)])
def test_a_run_whose_display_is_lost_goes_on(streams: str, tmp_path: Path) -> None:
    done = shell(f"{RUN} {tmp_path}/run {streams}")
    assert done.returncode == 0
    assert read_run(tmp_path / "run")["state"] == "finished"
    assert "Traceback" not in done.stderr
    if "full" in streams:
        assert done.stderr == "raffed: what standard output was to show is lost: No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "streams", [">&-", "2>&-", "2>/dev/full", "--json >/dev/full", "| head -1", "--json | head -1", "| true"]
)
def test_a_run_whose_display_is_lost_in_another_way_goes_on(streams: str, tmp_path: Path) -> None:
    done = shell(f"set -o pipefail; {RUN} {tmp_path}/run {streams}")
    assert done.returncode == 0
    assert read_run(tmp_path / "run")["state"] == "finished"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">/dev/full", 1, "raffed: what standard output was to show is lost: No space left on device\n"),
        ("| true", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
    ],
)
def test_a_list_that_cannot_be_shown_is_a_failure_unless_nobody_wanted_it(
    streams: str, code: int, said: str
) -> None:
    done = shell(f"set -o pipefail; {RAFFED} splits {streams}")
    assert (done.returncode, done.stderr) == (code, said)


def test_a_project_that_is_written_is_no_failure_though_its_list_is_lost(tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path} && {RAFFED} new mylab >/dev/full")
    assert done.returncode == 0
    assert done.stderr == "raffed: what standard output was to show is lost: No space left on device\n"
    assert (tmp_path / "mylab" / "pyproject.toml").exists()

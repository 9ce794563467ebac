"""The Slurm script: what shells say of it, and the whole of it on this machine with stand-ins for srun
and scontrol.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "cluster" / "slurm" / "raffed.sbatch"
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do
    [[ "$1" == --nodelist=* ]] && export SLURMD_NODENAME="${1#--nodelist=}"
    shift
done
exec "$@"
"""
SCONTROL = """#!/bin/bash
[[ "$1 $2" == "show hostnames" ]] && printf 'node1\\nnode2\\n'
"""
BESIDE = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where pip puts programs, then the system's
SHELLCHECK = shutil.which("shellcheck", path=BESIDE)
JOB = str(900_000 + os.getpid() % 90_000)


@pytest.fixture
def allocation(tmp_path: Path) -> dict[str, str]:
    """The environment of a batch script on an allocation of two nodes of one core, both of which are this
    machine.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "tokens").mkdir()
    others = ("RAY_", "SLURM", "RAFFED_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    slurm = {"JOB_NODELIST": "node[1-2]", "JOB_ID": JOB, "CPUS_PER_TASK": "1", "GPUS_ON_NODE": "0"}
    mine = {"PATH": f"{tools}:{BESIDE}", "RAFFED_TOKENS": str(tmp_path / "tokens"), "PYTHONPATH": str(ROOT)}
    return {**kept, **mine, **{f"SLURM_{name}": value for name, value in slurm.items()}}


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed (make extras)")
def test_shellcheck_warns_of_nothing() -> None:
    done = subprocess.run(
        [str(SHELLCHECK), "--severity=warning", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


def test_without_a_command_it_says_how_it_is_used(allocation: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", SCRIPT], env=allocation, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sbatch raffed.sbatch")
    assert list((tmp_path / "tokens").iterdir()) == []


def processes_of_the_job() -> list[psutil.Process]:
    """What still runs with the folders of this job."""
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if f"/rf{JOB}-" in " ".join(one.info["cmdline"] or ())]


@pytest.mark.slow
def test_the_end_of_the_time_limit_stops_a_run_on_both_nodes_resumably_and_nothing_is_left(
    allocation: dict[str, str], tmp_path: Path
) -> None:
    """Slurm sends SIGTERM to the batch script alone (--signal=B:TERM)."""
    out, tokens, log = tmp_path / "run", tmp_path / "tokens", tmp_path / "log"
    command = ["bash", SCRIPT, "run", "--split", "iid:6", "--rounds", "100000", "--out", str(out)]
    with log.open("wb") as sink:
        batch = subprocess.Popen(command, env=allocation, stdout=sink, stderr=sink, start_new_session=True)
    try:
        until = time.monotonic() + 240
        while not (out / "metrics").is_dir() or not list((out / "checkpoints").glob("round-*")):
            assert time.monotonic() < until, log.read_text()[-3000:]
            assert batch.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        (token_file,) = tokens.glob(".raffed-token.*/token")
        assert token_file.stat().st_mode & 0o077 == 0
        token = token_file.read_text()
        assert len(token) == 64
        batch.send_signal(signal.SIGTERM)
        assert batch.wait(60) == 143
    finally:
        if batch.poll() is None:
            os.killpg(batch.pid, signal.SIGKILL)
    about = json.loads((out / "run.json").read_text())
    assert about["state"] == "stopped"
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert not list(Path("/tmp").glob(f"rf{JOB}-*"))
    assert token not in log.read_text()
    assert list(tokens.iterdir()) == []
    assert processes_of_the_job() == []

"""The Slurm script on a real Slurm of two nodes: submitted, cancelled, cut off by the time limit, resumed.

`make test-real` installs Slurm (CONTRIBUTING.md). test_files.py tries the script with stand-ins for Slurm.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import raffed
from raffed.results.runfile import read_run
from tests.cluster.nodes import ROOT
from tests.cluster.slurm import Slurm, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]
SCRIPT = ROOT / "cluster" / "slurm" / "raffed.sbatch"
OPTIONS = ("--nodes=2", "--cpus-per-task=1", "--gpus-per-node=0")
RUN = raffed.RunConfig(
    data=raffed.Data(split="iid:6"),
    federation=raffed.Federation(rounds=400),
    runtime=raffed.Runtime(execution="serial"),
)
LONG = ("run", "--split", "iid:6", "--rounds", RUN.federation.rounds)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with Slurm() as made:
        yield made


@pytest.fixture(scope="module")
def hashes() -> dict[str, str]:
    """Those of a run that nothing disturbs, in one process."""
    return dict(raffed.run(RUN).hashes)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A person's environment."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM", "RAFFED_"))
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (tmp_path / "tokens").mkdir()
    mine = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return {**kept, **mine, "RAFFED_TOKENS": str(tmp_path / "tokens")}


def log_of(slurm: Slurm, job: int) -> str:
    path = slurm.folder / f"raffed-{job}.log"
    return path.read_text(errors="replace")[-4000:] if path.exists() else ""


def left_of(job: int) -> list[str]:
    """Folders and processes of a job's nodes."""
    found = [str(path) for path in Path("/tmp").glob(f"rf{job}-node*")]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"/rf{job}-node" in words:
            found.append(words[:100])
    return found


def too_slow(slurm: Slurm, job: int) -> bool:
    """Whether Ray gave up: it gives a node 30 seconds to start, which a busy machine may not keep."""
    return "timed out during startup" in log_of(slurm, job)


def carried_out(slurm: Slurm, env: dict[str, str], *words: object) -> tuple[int, str]:
    """A job that has ended, and its state."""
    for _ in range(3):
        job = slurm.submit(SCRIPT, *words, options=OPTIONS, env=env)
        state = slurm.wait(job)
        if not too_slow(slurm, job):
            break
    return job, state


def under_way(slurm: Slurm, env: dict[str, str], out: Path) -> int:
    """A job that has written a checkpoint."""
    job, tries = slurm.submit(SCRIPT, *LONG, "--out", out, options=OPTIONS, env=env), 1
    until = time.monotonic() + 500
    while not list((out / "checkpoints").glob("round-*/state.json")):
        assert time.monotonic() < until, log_of(slurm, job) + slurm.logs()
        if slurm.about(job)["JobState"] not in ("PENDING", "RUNNING"):
            assert too_slow(slurm, job), log_of(slurm, job)
            assert tries < 3, log_of(slurm, job)
            job, tries = slurm.submit(SCRIPT, *LONG, "--out", out, options=OPTIONS, env=env), tries + 1
        time.sleep(0.2)
    return job


def test_a_run_uses_both_nodes_has_the_bits_of_a_serial_run_and_leaves_nothing(
    slurm: Slurm, env: dict[str, str], tmp_path: Path
) -> None:
    words = ("run", "--method", "scamap", "--split", "iid:6", "--local-test", "0.2", "--rounds", "2")
    job, state = carried_out(slurm, env, *words, "--out", tmp_path / "run")
    assert state == "COMPLETED", log_of(slurm, job)
    about = read_run(tmp_path / "run")
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert about["hashes"] == raffed.run(serial_of(about)).hashes
    assert left_of(job) == []
    assert list((tmp_path / "tokens").iterdir()) == []


def serial_of(about: dict[str, object]) -> raffed.RunConfig:
    """The configuration of a run, for one process."""
    tables = json.loads(json.dumps(about["config"]))
    tables["runtime"] = {"execution": "serial"}
    return raffed.RunConfig.from_dict(tables)


def test_a_command_that_is_refused_fails_the_job_with_its_exit_code(
    slurm: Slurm, env: dict[str, str], tmp_path: Path
) -> None:
    job, state = carried_out(slurm, env, "run", "--split", "p0c0", "--out", tmp_path / "run")
    assert state == "FAILED"
    assert slurm.about(job)["ExitCode"] == "2:0"
    assert left_of(job) == []


@pytest.mark.parametrize(
    "options", [(), ("--signal=TERM", "--batch")], ids=["scancel", "scancel --signal=TERM"]
)
def test_a_cancelled_job_leaves_a_run_that_another_job_resumes_to_the_same_bits(
    options: tuple[str, ...], slurm: Slurm, env: dict[str, str], hashes: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = under_way(slurm, env, out)
    slurm.cancel(job, *options)
    assert slurm.wait(job) == ("FAILED" if options else "CANCELLED"), log_of(slurm, job)
    if options:
        assert slurm.about(job)["ExitCode"] == "143:0"
        assert read_run(out)["state"] == "stopped"
    assert left_of(job) == []
    assert list((tmp_path / "tokens").iterdir()) == []
    again, state = carried_out(slurm, env, "resume", out)
    assert state == "COMPLETED", log_of(slurm, again)
    assert read_run(out)["hashes"] == hashes
    assert left_of(again) == []


def test_before_the_time_limit_the_run_is_told_and_writes_a_checkpoint(
    slurm: Slurm, env: dict[str, str], hashes: dict[str, str], tmp_path: Path
) -> None:
    """The script asks for SIGTERM two minutes before; the limit is set to less than that from now."""
    out = tmp_path / "run"
    job = under_way(slurm, env, out)
    passed = slurm.about(job)["RunTime"].split(":")
    slurm.limit(job, 60 * int(passed[0]) + int(passed[1]) + 2)
    assert slurm.wait(job) == "FAILED", log_of(slurm, job)
    assert slurm.about(job)["ExitCode"] == "143:0"
    about = read_run(out)
    assert about["state"] == "stopped"
    assert left_of(job) == []
    again, state = carried_out(slurm, env, "resume", out)
    assert state == "COMPLETED", log_of(slurm, again)
    assert read_run(out)["hashes"] == hashes

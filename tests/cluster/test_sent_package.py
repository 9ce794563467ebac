"""A folder that `raffed submit` really sends to a cluster: what arrives, where the job runs, and its bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cli.conftest import shell
from tests.cluster.nodes import Cluster
from tests.own.conftest import PROX

pytestmark = pytest.mark.slow
SAYS_WHERE = """
import os, pathlib
print("READ", pathlib.Path(__file__).resolve(), "IN", os.getcwd())
"""
EXPERIMENT = """
method = "./prox.py:myprox"
[data]
split = "p4c5"
[local]
epochs = 1.0
[federation]
rounds = 2
"""
STAYS = (".env", ".git/config", "id_rsa", "pkg/server.pem", "big.npz", "runs/a/run.json", "data/x.txt")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(workers=0) as made:
        yield made


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project with a package, and with data, keys and settings that should stay here."""
    root = tmp_path / "checkout"
    for name in ("pkg/own.py", *STAYS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    (root / "exp.toml").write_text(EXPERIMENT)
    (root / "prox.py").write_text(SAYS_WHERE + PROX)
    return root


def submit(cluster: Cluster, checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`raffed submit` as a person calls it in the project's folder, who has the token."""
    start = [sys.executable, "-m", "raffed", "submit", "--address", cluster.dashboard]
    return subprocess.run(
        [*start, "--python", sys.executable, "--env", "PYTHONDONTWRITEBYTECODE=1", *words],
        env=cluster.environment,
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def arrived(cluster: Cluster) -> set[Path]:
    """The folders into which Ray unpacked packages so far. One of its links leads to the session's folder."""
    places = cluster.folder.glob("n0/session_*/runtime_resources/working_dir_files/*")
    return {one.resolve() for one in places if one.is_dir()}


def test_the_project_s_files_arrive_and_the_job_runs_there_with_the_serial_bits(
    cluster: Cluster, checkout: Path, tmp_path: Path
) -> None:
    words = ["--working-dir", ".", "run", "exp.toml", "--out", str(tmp_path / "there")]
    before = arrived(cluster)
    done = submit(cluster, checkout, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with 3 files" in done.stderr
    [place] = arrived(cluster) - before
    there = {one.relative_to(place).as_posix(): one.read_bytes() for one in place.rglob("*") if one.is_file()}
    assert there == {name: (checkout / name).read_bytes() for name in ("exp.toml", "prox.py", "pkg/own.py")}

    said = [line for line in done.stdout.splitlines() if line.startswith("READ ")]
    # `submit` itself reads the method's file here, before it sends it
    assert set(said) == {f"READ {one / 'prox.py'} IN {one}" for one in (checkout, place)}
    done = shell("run", "exp.toml", "--execution", "serial", "--out", tmp_path / "serial", cwd=checkout)
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "there")["hashes"] == read_run(tmp_path / "serial")["hashes"]


def test_a_toml_file_and_its_own_code_arrive_alone(cluster: Cluster, checkout: Path, tmp_path: Path) -> None:
    before = arrived(cluster)
    done = submit(cluster, checkout, "run", "exp.toml", "--out", str(tmp_path / "there"))
    assert done.returncode == 0, done.stdout + done.stderr
    [place] = arrived(cluster) - before
    assert sorted(one.name for one in place.rglob("*")) == ["exp.toml", "prox.py"]
    assert read_run(tmp_path / "there")["state"] == "finished"

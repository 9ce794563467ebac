"""On a cluster whose nodes cannot read the user's folder, the source files travel with the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raffed.results import read_run
from tests.cli.conftest import shell
from tests.cluster.nodes import Cluster

SAID = ["--method", "./own.py:myprox", "--rounds", "2", "--epochs", "1", "--split", "p4c5", "--quiet"]
HIDE = """
import pathlib, sys
from raffed.cli import main
from raffed.runtime.ray import launch

planned = launch.make_plan

def plan(*given):
    # From here on only the driver and the actors work: for them the folder does not exist
    for name in ("own.py", "prox.py"):
        pathlib.Path(name).rename(name + ".hidden")
    return planned(*given)

launch.make_plan = plan
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_nodes_that_cannot_read_the_user_s_folder_run_the_code_that_travels(lab: Path) -> None:
    """Two raylets with working folders of their own; `own.py` imports its neighbour `prox.py`."""
    (lab / "own.py").write_text("from prox import Pull, Rounds, myprox\n", encoding="utf-8")
    done = shell("run", *SAID, "--execution", "serial", "--out", "serial", cwd=lab)
    assert done.returncode == 0, done.stderr
    with Cluster(workers=1) as cluster:
        where = ["--clients-per-actor", "3", "--address", cluster.gcs_address]
        done = subprocess.run(
            [sys.executable, "-c", HIDE, "run", *SAID, *where, "--out", str(lab / "there")],
            env=cluster.environment,
            cwd=lab,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    about = read_run(lab / "there")
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert about["hashes"] == read_run(lab / "serial")["hashes"]
    assert not (lab / "own.py").exists()

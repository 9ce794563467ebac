"""Own code on a local Ray, and on a cluster whose nodes cannot read its folder: the bits of a serial run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed import Data, Runtime
from raffed.results.runfile import read_run
from tests.cli.conftest import shell
from tests.cluster.nodes import Cluster
from tests.own.own_code import federated
from tests.own.own_code import write as write_mylab

pytestmark = pytest.mark.slow
EVERYTHING = replace(
    federated(metrics="./mylab.py:right,./mylab.py:nll", unseen_clients=0.34),
    data=Data(split="./mylab.py:halves", split_args={"clients": 6}, local_test=0.2, validation=0.2),
    loss="./mylab.py:balanced",
    method="map",
)


def test_ray_and_the_serial_backend_agree_bit_for_bit(lab: Path) -> None:
    write_mylab(lab)
    serial = raffed.run(EVERYTHING)
    on_ray = raffed.run(replace(EVERYTHING, runtime=Runtime(execution="ray", actors=2)), out="run")
    assert on_ray.hashes == serial.hashes
    assert raffed.verify("run").ok


SAID = ["--method", "./prox.py:myprox", "--rounds", "2", "--epochs", "1", "--split", "p4c5", "--quiet"]


OWN = ["--method", "./own.py:myprox", *SAID[2:]]
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


def test_nodes_that_cannot_read_the_user_s_folder_run_the_code_that_travels(lab: Path) -> None:
    """Two raylets with working folders of their own; `own.py` imports its neighbour `prox.py`."""
    (lab / "own.py").write_text("from prox import Pull, Rounds, myprox\n", encoding="utf-8")
    done = shell("run", *OWN, "--execution", "serial", "--out", "serial", cwd=lab)
    assert done.returncode == 0, done.stderr
    with Cluster(workers=1) as cluster:
        where = ["--clients-per-actor", "3", "--address", cluster.gcs_address]
        words = [sys.executable, "-c", HIDE, "run", *OWN, *where, "--out", str(lab / "there")]
        streams = {"capture_output": True, "text": True, "timeout": 240}
        done = subprocess.run(words, env=cluster.environment, cwd=lab, **streams)
    assert done.returncode == 0, done.stdout + done.stderr
    about = read_run(lab / "there")
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert about["hashes"] == read_run(lab / "serial")["hashes"]
    assert not (lab / "own.py").exists()

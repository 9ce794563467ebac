"""A job on three nodes that loses one of them: it goes on with the others, to the bits of a serial run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import raffed
from raffed.config.toml import parse_toml
from tests.cluster.nodes import EXPERIMENT, ROOT, Cluster

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("method", "lost"), [("fedavg", 1), ("scamap", 2)])
def test_a_job_whose_node_is_lost_goes_on_elsewhere_to_the_same_bits(
    method: str, lost: int, tmp_path: Path
) -> None:
    """The raylet of a node is killed while rounds go on, and with it everything that ran there."""
    text, out, log = (
        EXPERIMENT.format(method=method, clients=2, rounds=150),
        tmp_path / "run",
        tmp_path / "log",
    )
    (tmp_path / "exp.toml").write_text(text)
    with Cluster(workers=2) as cluster:
        start = [sys.executable, "-m", "raffed", "submit", "--address", cluster.dashboard]
        words = ["--python", sys.executable, "run", tmp_path / "exp.toml", "--out", out]
        with log.open("wb") as sink:
            job = subprocess.Popen(
                [*start, *map(str, words)], env=cluster.environment, cwd=ROOT, stdout=sink, stderr=sink
            )
        try:
            until = time.monotonic() + 240
            while not list((out / "checkpoints").glob("round-*/state.json")):
                assert time.monotonic() < until, log.read_text()[-3000:]
                assert job.poll() is None, log.read_text()[-3000:]
                time.sleep(0.1)
            cluster.lose(lost)
            assert job.wait(300) == 0, log.read_text()[-3000:]
        finally:
            job.kill()
        assert cluster.ask("print(sum(n['Alive'] for n in ray.nodes()))") == "2"
    about = json.loads((out / "run.json").read_text())
    assert about["state"] == "finished"
    placement = about["placement"]
    assert (placement["restarts"], len(placement["retired"])) == (1, 1), "the other nodes have no room"
    assert len({place["node"] for place in placement["places"]}) == 2
    tables = parse_toml(text, "exp.toml")
    tables["runtime"] = {"execution": "serial"}
    assert about["hashes"] == raffed.run(raffed.RunConfig.from_dict(tables)).hashes

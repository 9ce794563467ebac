"""Ray nodes as processes on this machine, with a token: where clients land, what a node holds, who is let
in, and what becomes of a run whose node is lost or has other code.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cluster.nodes import EXPERIMENT, ROOT, Cluster, serial_hashes

pytestmark = pytest.mark.slow
RAFFED = [sys.executable, "-m", "raffed"]
ALIVE = "print(sum(n['Alive'] for n in ray.nodes()))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


def words_of(cluster: Cluster, *words: object) -> list[str]:
    """`raffed submit` as a person types it."""
    return [*RAFFED, "submit", "--address", cluster.dashboard, "--python", sys.executable, *map(str, words)]


def called(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def submit(cluster: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    return called(words_of(cluster, *words), cluster.environment)


def experiment(folder: Path, method: str = "scamap", clients: int = 1, rounds: int = 3) -> Path:
    (folder / "exp.toml").write_text(EXPERIMENT.format(method=method, clients=clients, rounds=rounds))
    return folder / "exp.toml"


def nodes_of(run: Path) -> Counter[str]:
    """How many actors each node has."""
    return Counter(place["node"] for place in read_run(run)["placement"]["places"])


@pytest.mark.parametrize(("method", "clients"), [("fedavg", 2), ("scamap", 1), ("scamap", 2)])
def test_a_job_uses_every_node_and_has_the_bits_of_a_serial_run(
    cluster: Cluster, tmp_path: Path, method: str, clients: int
) -> None:
    """One actor a client, and packed actors whose clients wander between nodes with their vaults."""
    file, out = experiment(tmp_path, method, clients), tmp_path / "there"
    done = submit(cluster, "run", file, "--out", out.as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(nodes_of(out)) == 3
    assert read_run(out)["hashes"] == serial_hashes(file)
    assert cluster.token_file.read_text() not in done.stdout + done.stderr + (out / "run.json").read_text()


def test_actors_that_share_a_node_send_the_driver_one_sum_and_the_bits_are_those_of_a_serial_run(
    tmp_path: Path,
) -> None:
    """Six actors on three nodes of different sizes. Those of the two nodes without the driver add there."""
    file, out = experiment(tmp_path), tmp_path / "run"
    with Cluster(cpus=(1, 2, 3)) as uneven:
        done = submit(uneven, "run", file, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(nodes_of(out).values()) == [1, 2, 3]
    assert read_run(out)["hashes"] == serial_hashes(file)


@pytest.mark.parametrize(("method", "lost"), [("fedavg", 1), ("scamap", 2)])
def test_a_job_whose_node_is_lost_goes_on_elsewhere_to_the_same_bits(
    method: str, lost: int, tmp_path: Path
) -> None:
    """The raylet of a node is killed while rounds go on, and with it everything that ran there."""
    file, out = experiment(tmp_path, method, clients=2, rounds=150), tmp_path / "run"
    log = tmp_path / "log"
    with Cluster() as cluster:
        with log.open("wb") as sink:
            words = words_of(cluster, "run", file, "--out", out)
            job = subprocess.Popen(words, env=cluster.environment, cwd=ROOT, stdout=sink, stderr=sink)
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
        assert cluster.ask(ALIVE) == "2"
    placement = read_run(out)["placement"]
    assert (placement["restarts"], len(placement["retired"])) == (1, 1), "the other nodes have no room"
    assert len(nodes_of(out)) == 2
    assert read_run(out)["hashes"] == serial_hashes(file)


@pytest.mark.parametrize("token", [None, "0" * 64])
def test_neither_a_job_nor_a_driver_without_the_token_is_let_in(
    cluster: Cluster, tmp_path: Path, token: str | None
) -> None:
    """By way of the job server, and straight at Ray's own port."""
    stranger = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_AUTH")}
    stranger["HOME"] = str(tmp_path)
    if token is not None:
        stranger |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    done = called(words_of(cluster, "run", "--out", tmp_path / "run"), stranger)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "RAY_AUTH_TOKEN_PATH" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    if token is None:  # Ray itself would try for minutes
        return
    join = f"import ray; ray.init('{cluster.gcs_address}', logging_level='ERROR'); print('LET IN')"
    driver = called([sys.executable, "-c", join], stranger)
    assert driver.returncode != 0
    assert "LET IN" not in driver.stdout

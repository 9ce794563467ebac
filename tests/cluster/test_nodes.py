"""Ray nodes as processes on this machine, with a token: where clients land, what a node holds, who is let
in, and what becomes of a run whose node is lost or has other code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.config.toml import parse_toml
from raffed.results.runfile import read_run
from tests.cluster.nodes import EXPERIMENT, ROOT, Cluster, with_mount

pytestmark = pytest.mark.slow
RAFFED = [sys.executable, "-m", "raffed"]
ALIVE = "print(sum(n['Alive'] for n in ray.nodes()))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(workers=2) as made:
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


def serial_hashes(file: Path) -> dict[str, str]:
    """Those of the same run in one process."""
    tables = parse_toml(file.read_text(), "exp.toml")
    tables["runtime"] = {"execution": "serial"}
    return dict(raffed.run(raffed.RunConfig.from_dict(tables)).hashes)


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
    with Cluster(workers=2, cpus=(1, 2, 3)) as uneven:
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
    with Cluster(workers=2) as cluster:
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


COPIES = """
import json
from raffed import Data, RunConfig
from raffed.runtime.setup import prepare_run
from raffed.runtime.ray.client_actor import ClientActor
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

def where(actor):
    '''Node, the shared memory that holds the images, and whether they are a view of it.'''
    import os
    images = actor._worker.setup.dataset.x
    at = images.__array_interface__['data'][0]
    for line in open('/proc/self/maps'):
        span, _, offset, device, inode = line.split()[:5]
        low, high = (int(part, 16) for part in span.split('-'))
        if low <= at < high:
            place, node = at - low + int(offset, 16), ray.get_runtime_context().get_node_id()
            return node, device + inode, place, bool(images.flags.writeable), os.getpid()

setup = prepare_run(RunConfig(data=Data(split='iid:6')))
reference = ray.put(setup)
nodes = [node['NodeID'] for node in ray.nodes() if node['Alive']]
strategies = [On(node, soft=False) for node in nodes for _ in range(2)]
actors = [
    ClientActor.options(num_cpus=0.4, scheduling_strategy=one).remote([reference], '/nowhere', (number,))
    for number, one in enumerate(strategies)
]
print(json.dumps(ray.get([actor.__ray_call__.remote(where) for actor in actors])))
"""


def test_a_node_holds_the_data_once_however_many_actors_read_them(cluster: Cluster) -> None:
    """Two actors a node: the images of both are the same bytes of the node's object store, read-only;
    each node has its own.
    """
    found: list[list[Any]] = json.loads(cluster.ask(COPIES, 180))
    assert len({pid for *_, pid in found}) == 6
    assert not any(writeable for _, _, _, writeable, _ in found)
    by_node: dict[str, set[tuple[str, int]]] = {}
    for node, memory, place, _, _ in found:
        by_node.setdefault(node, set()).add((memory, place))
    assert len(by_node) == 3
    assert all(len(copies) == 1 for copies in by_node.values())
    assert len({memory for copies in by_node.values() for memory, _ in copies}) == 3


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


def test_private_state_on_a_node_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    """The second node has another file system over the folder, as if it had not mounted the shared one."""
    shared, small = tmp_path / "shared", ("--split", "iid:4", "--rounds", "1")
    shared.mkdir()
    with Cluster(workers=1, prefixes=[(), with_mount(f"mount -t tmpfs none {shared}")]) as two:
        kept = submit(two, "run", "--method", "scamap", *small, "--out", shared / "kept")
        assert kept.returncode == 2, kept.stdout + kept.stderr
        assert "cannot be seen by 1 of 2 nodes" in kept.stdout
        assert not (shared / "kept").exists()
        free = submit(two, "run", "--method", "fedavg", *small, "--out", shared / "free")
        assert free.returncode == 0, free.stdout + free.stderr
        sweep = submit(two, "tune", "--method", "fedavg", *small, "--out", shared / "sweep")
        assert sweep.returncode == 2
        assert "a sweep, whose trials run anywhere" in sweep.stdout


@pytest.fixture(scope="module")
def other_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """On the second node one file of raffed ends with one more line. It would give the same bits, but nobody
    can know that. The node sees another file at the same path, as a machine with a disk of its own does: Ray
    gives its processes the search path of the command.
    """
    file = ROOT / "raffed" / "core" / "seeds.py"
    changed = tmp_path_factory.mktemp("other") / "seeds.py"
    changed.write_text(file.read_text() + "# changed on this node\n")
    with Cluster(workers=1, prefixes=[(), with_mount(f"mount --bind {changed} {file}")]) as made:
        yield made


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "run --method fedavg"),  # an actor on the node ends the run
        (2, "run --method scamap"),  # what needs a shared folder asks all nodes before it begins
        (2, "tune --method fedavg"),
        (1, "doctor --ray"),
    ],
)
def test_a_node_with_other_code_is_named_and_nothing_is_trained_there(
    other_code: Cluster, tmp_path: Path, code: int, words: str
) -> None:
    out = ["--split", "iid:4", "--rounds", "1", "--actors", "2", "--out", str(tmp_path / "run")]
    asked = [*RAFFED, *words.split(), *([] if "doctor" in words else out)]
    done = called([*asked, "--address", other_code.gcs_address], other_code.environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert "the hash of raffed's files is" in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr
    assert code == 1 or not (tmp_path / "run").exists()


NAMES = [f"rf{os.getpid() % 10_000}n{number}" for number in range(3)]
BRIDGE = f"rf{os.getpid() % 10_000}br"


def ip(*words: str) -> int:
    """Call `ip`; its exit code."""
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Three network namespaces on a bridge, each with an address of its own: as good as machines, for a
    network.
    """
    if os.geteuid() != 0 or ip("link", "add", BRIDGE, "type", "bridge") != 0:
        pytest.skip("network namespaces are not permitted here")
    try:
        ip("addr", "add", "10.213.7.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(NAMES):
            made = ip("netns", "add", name) or ip(
                "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name
            )
            if made != 0:
                pytest.skip("network namespaces are not permitted here")
            ip("link", "set", f"{name}h", "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"10.213.7.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "default", "via", "10.213.7.254")
        yield [f"10.213.7.{number + 1}" for number in range(len(NAMES))]
    finally:
        for name in NAMES:
            ip("link", "del", f"{name}h")
            ip("netns", "del", name)
        ip("link", "del", BRIDGE)

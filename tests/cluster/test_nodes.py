"""Three Ray nodes as processes on this machine, with a token: where clients land, what a node holds, who
is let in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.config.toml import parse_toml
from tests.cluster.nodes import EXPERIMENT, ROOT, Cluster, with_mount

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(workers=2) as made:
        yield made


def submit(
    cluster: Cluster, *words: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`raffed submit` as a person calls it."""
    start = [
        sys.executable,
        "-m",
        "raffed",
        "submit",
        "--address",
        cluster.dashboard,
        "--python",
        sys.executable,
    ]
    command = [*start, *map(str, words)]
    env = environment or cluster.environment
    return subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(("method", "clients"), [("fedavg", 2), ("scamap", 1), ("scamap", 2)])
def test_a_job_uses_every_node_and_has_the_bits_of_a_serial_run(
    cluster: Cluster, tmp_path: Path, method: str, clients: int
) -> None:
    """One actor a client, and packed actors whose clients wander between nodes with their vaults."""
    text = EXPERIMENT.format(method=method, clients=clients, rounds=3)
    (tmp_path / "exp.toml").write_text(text)
    done = submit(cluster, "run", tmp_path / "exp.toml", "--out", (tmp_path / "there").as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    about = json.loads((tmp_path / "there" / "run.json").read_text())
    assert len({place["node"] for place in about["placement"]["places"]}) == 3
    tables = parse_toml(text, "exp.toml")
    tables["runtime"] = {"execution": "serial"}
    assert about["hashes"] == raffed.run(raffed.RunConfig.from_dict(tables), tmp_path / "serial").hashes
    assert cluster.token_file.read_text() not in done.stdout + done.stderr + json.dumps(about)


def test_actors_that_share_a_node_send_the_driver_one_sum_and_the_bits_are_those_of_a_serial_run(
    tmp_path: Path,
) -> None:
    """Six actors on three nodes of different sizes. Those of the two nodes without the driver add there."""
    text = EXPERIMENT.format(method="scamap", clients=1, rounds=3)
    (tmp_path / "exp.toml").write_text(text)
    with Cluster(workers=2, cpus=(1, 2, 3)) as uneven:
        done = submit(uneven, "run", tmp_path / "exp.toml", "--out", tmp_path / "run")
        assert done.returncode == 0, done.stdout + done.stderr
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    shared = Counter(place["node"] for place in about["placement"]["places"])
    assert sorted(shared.values()) == [1, 2, 3]
    tables = parse_toml(text, "exp.toml")
    tables["runtime"] = {"execution": "serial"}
    assert about["hashes"] == raffed.run(raffed.RunConfig.from_dict(tables), tmp_path / "serial").hashes


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
            place = at - low + int(offset, 16)
            return ray.get_runtime_context().get_node_id(), device + inode, place, bool(images.flags.writeable), os.getpid()

setup = prepare_run(RunConfig(data=Data(split='iid:6')))
reference = ray.put(setup)
nodes = [node['NodeID'] for node in ray.nodes() if node['Alive']]
options = [dict(num_cpus=0.4, scheduling_strategy=On(node, soft=False)) for node in nodes for _ in range(2)]
actors = [ClientActor.options(**one).remote([reference], '/nowhere', (number,)) for number, one in enumerate(options)]
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
def test_a_job_without_the_token_is_refused(cluster: Cluster, tmp_path: Path, token: str | None) -> None:
    stranger = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_AUTH")}
    stranger["HOME"] = str(tmp_path)
    if token is not None:
        stranger |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    done = submit(cluster, "run", "--out", tmp_path / "run", environment=stranger)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "RAY_AUTH_TOKEN_PATH" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_driver_without_the_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Not by way of the job server but straight at Ray's own port."""
    kept = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_AUTH")}
    code = f"import ray; ray.init('{cluster.gcs_address}', logging_level='ERROR'); print('LET IN')"
    stranger = {**kept, "HOME": str(tmp_path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-c", code], env=stranger, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "LET IN" not in done.stdout


def test_a_failing_job_ends_with_its_own_exit_code(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    done = submit(cluster, "run", "--rounds", "1", "--out", tmp_path / "taken")
    assert done.returncode == 2
    assert "not an empty folder" in done.stdout
    assert "did not succeed (exit code 2)" in done.stderr


def test_private_state_on_a_node_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    """The second node has another file system over the folder, as if it had not mounted the shared one."""
    shared = tmp_path / "shared"
    shared.mkdir()
    with Cluster(workers=1, prefixes=[(), with_mount(f"mount -t tmpfs none {shared}")]) as two:
        kept = submit(
            two, "run", "--method", "scamap", "--split", "iid:4", "--rounds", "1", "--out", shared / "kept"
        )
        assert kept.returncode == 2, kept.stdout + kept.stderr
        assert "cannot be seen by 1 of 2 nodes" in kept.stdout
        assert not (shared / "kept").exists()
        free = submit(
            two, "run", "--method", "fedavg", "--split", "iid:4", "--rounds", "1", "--out", shared / "free"
        )
        assert free.returncode == 0, free.stdout + free.stderr
        sweep = submit(
            two, "tune", "--method", "fedavg", "--split", "iid:4", "--rounds", "1", "--out", shared / "sweep"
        )
        assert sweep.returncode == 2
        assert "a sweep, whose trials run anywhere" in sweep.stdout


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


def test_nodes_with_addresses_of_their_own_give_the_bits_of_a_serial_run(
    machines: list[str], tmp_path: Path
) -> None:
    text = EXPERIMENT.format(method="scamap", clients=1, rounds=3)
    (tmp_path / "exp.toml").write_text(text)
    prefixes = [["ip", "netns", "exec", name] for name in NAMES]
    with Cluster(prefixes=prefixes, addresses=machines) as apart:
        addresses = json.loads(
            apart.ask("import json; print(json.dumps([n['NodeManagerAddress'] for n in ray.nodes()]))")
        )
        done = submit(apart, "run", tmp_path / "exp.toml", "--out", tmp_path / "run")
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(addresses) == machines
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len({place["node"] for place in about["placement"]["places"]}) == 3
    tables = parse_toml(text, "exp.toml")
    tables["runtime"] = {"execution": "serial"}
    assert about["hashes"] == raffed.run(raffed.RunConfig.from_dict(tables), tmp_path / "serial").hashes

"""Three machines on lines of 100 Mbit/s and 20 ms: what a round sends, and what the loss of the driver or of
a machine leaves. W1's network and optimiser, with fewer clients and noise for images.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.nodes import FORM, WARM, measured, nodes, predicted, started
from benchmarks.nodes import events as events_of
from raffed.results.runfile import read_run
from tests.cluster import netem
from tests.cluster.netem import DELAY, RATE, Network
from tests.cluster.nodes import Cluster, serial_hashes

CLIENTS, NODES = 12, 3
PACKED, ALONE = "actors = 6", "clients_per_actor = 1"
SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], 5000)) as far:
    answered = time.monotonic()
    far.sendall(bytes(int(sys.argv[2])))
    far.shutdown(socket.SHUT_WR)
    far.recv(1)
print(answered - began, time.monotonic() - answered)
"""
TAKE = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print(flush=True)
    near, _ = server.accept()
    with near:
        while near.recv(2**20):
            pass
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why := netem.obstacle()), reason=why or "nothing"),
]


def experiment(
    folder: Path, placement: str, rounds: int, checkpoint: int = 2, method: str = "fedavg"
) -> Path:
    """Six of twelve clients in a round on two actors a node, or six clients with an actor each."""
    rng, clients = np.random.default_rng(0), CLIENTS if placement == PACKED else CLIENTS // 2
    x, y = rng.integers(0, 255, (clients * 64, 1, 28, 28), dtype=np.uint8), rng.integers(0, 10, clients * 64)
    np.savez(folder / "noise.npz", x=x, y=y, x_test=x[:100], y_test=y[:100])
    named = {
        "method": method,
        "dataset": f"npz:{folder / 'noise.npz'}",
        "split": f"iid:{clients}",
        "epochs": 1.0,
        "participation": CLIENTS / 2 / clients,
    }
    text = FORM.format(**named, rounds=rounds, placement=placement, checkpoint=checkpoint)
    (folder / "exp.toml").write_text(text)
    return folder / "exp.toml"


def until_round(process: subprocess.Popen[str], number: int) -> None:
    """Read what a command writes until this round has ended."""
    for event in events_of(process):
        if event["event"] == "round" and event["round"] >= number:
            return
    pytest.fail(f"the run ended with {process.wait()}")


def hashes_at_the_end(process: subprocess.Popen[str]) -> dict[str, str] | None:
    """Return the hashes that a command writes when it has finished, or None if it has not."""
    with process:
        found = [event["hashes"] for event in events_of(process) if event["event"] == "finished"]
    return dict(found[-1]) if found else None


@pytest.mark.parametrize("by", ["tc", "user space"])
def test_a_line_has_its_delay_and_its_rate_and_counts_what_it_carries(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel has no netem, its bridge and qdiscs are tried with the rate alone."""
    size, delay = 5_000_000, DELAY
    if by == "user space":
        monkeypatch.setattr(netem, "SHAPES", None)
    else:
        with Network(1) as plain:
            pass
        if plain.by != "tc netem":
            delay, shape = 0.0, f"tbf rate {RATE:.0f}bit burst 32kb latency 120ms"
            monkeypatch.setattr(netem, "SHAPES", (shape, shape))
    with Network(2) as network:
        assert network.by.startswith("tc" if by == "tc" else "a switch")
        near, far = network.hosts
        taking = [*near.prefix, sys.executable, "-c", TAKE, near.address]
        with subprocess.Popen(taking, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()
            sending = [*far.prefix, sys.executable, "-c", SEND, near.address, str(size)]
            answer, took = map(float, subprocess.check_output(sending, text=True).split())
        (into, out), (back, sent) = near.traffic(), far.traffic()
    assert 2 * delay <= answer < 2 * delay + 0.2
    assert 0.9 * size * 8 / RATE <= took < 2.5 * size * 8 / RATE + 0.5
    assert size < into < 1.1 * size
    assert sent == pytest.approx(into, rel=0.02)
    assert max(back, out) < 0.05 * size
    assert not any(host.name in subprocess.getoutput("ip netns") for host in network.hosts)


@pytest.mark.parametrize(
    ("placement", "method", "power"),
    [(PACKED, "fedavg", False), (ALONE, "scamap", False), (ALONE, "scamap", True)],
)
def test_a_run_that_loses_a_machine_ends_with_the_hashes_of_a_serial_run(
    tmp_path: Path, placement: str, method: str, power: bool
) -> None:
    """Without power its raylet is gone and its line is down, so nothing tells the others, and Ray misses it
    after a minute. With power its actors are lost at once, and Ray counts its cores for some seconds more.
    Packed clients then move to the other actors. Two machines have no room for six actors of a core, one a
    client: that run ends, and is resumed there.
    """
    file, out = experiment(tmp_path, placement, 9, method=method), tmp_path / "run"
    with nodes(NODES) as (network, cluster):
        process = started(cluster, "run", file, "--out", out)
        until_round(process, 3)
        if not power:
            network.hosts[2].cut()
        cluster.lose(2)
        ended = hashes_at_the_end(process)
        assert (ended is None) == (placement == ALONE)
        assert (ended or hashes_at_the_end(started(cluster, "resume", out))) == serial_hashes(file)


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Network, Cluster]]:
    with nodes(NODES) as made:
        yield made


@pytest.mark.parametrize("placement", [PACKED, ALONE])
def test_each_node_receives_one_model_and_sends_one_sum_in_a_round(
    three: tuple[Network, Cluster], tmp_path: Path, placement: str
) -> None:
    """Although two actors of it work. The driver's line carries what those of all others do."""
    network, cluster = three
    file, out = experiment(tmp_path, placement, rounds=WARM + 9), tmp_path / "run"
    found = measured(network, cluster, file, out)
    driver, each = predicted(NODES)
    for line, should in zip(found["bytes"], [driver, each, each], strict=True):
        for counted, told in zip(line, should, strict=True):  # a broadcast may lie on either side of an end
            assert counted == pytest.approx(told, rel=0.03 + 1 / found["rounds"])
    assert read_run(out)["hashes"] == serial_hashes(file)


@pytest.mark.parametrize("placement", [PACKED, ALONE])
def test_a_run_whose_drivers_are_killed_ends_with_the_hashes_of_a_serial_run(
    three: tuple[Network, Cluster], tmp_path: Path, placement: str
) -> None:
    """First the driver actor, after which the command goes on; then the command, and `resume` goes on."""
    _, cluster = three
    file, out = experiment(tmp_path, placement, rounds=9), tmp_path / "run"
    with started(cluster, "run", file, "--out", out) as process:
        until_round(process, 3)
        os.kill(int(str(read_run(out)["placement"]["driver_pid"])), signal.SIGKILL)
        until_round(process, 6)
        process.kill()
    assert hashes_at_the_end(started(cluster, "resume", out)) == serial_hashes(file)

"""Ray nodes as processes of their own on this machine: a head and workers, each with its ports, folder
and token.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import raffed
from raffed.config.toml import parse_toml
from tests.cluster.netem import Host

ROOT = Path(__file__).parents[2]
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
STORE = 80 * 2**20  # bytes of an object store, the least that Ray takes being 75 MiB
UP_SECONDS = 240.0  # on a machine that others use as well


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found


# One federation for the tests of several nodes
EXPERIMENT = """
method = "{method}"
[data]
split = "iid:6"
local_test = 0.2
[model]
name = "mlp"
args = {{ hidden = [16] }}
[local]
epochs = 1.0
[federation]
rounds = {rounds}
participation = 0.67
[runtime]
clients_per_actor = {clients}
"""


def serial_hashes(file: Path) -> dict[str, str]:
    """Those of an experiment in one process, which nothing disturbs."""
    tables = parse_toml(file.read_text(), file.name)
    tables["runtime"] = {"execution": "serial"}
    return dict(raffed.run(raffed.RunConfig.from_dict(tables)).hashes)


class Cluster:
    """A head and `workers` more nodes of one core each, or of `cpus`; they end when the block is left.

    With `hosts` there is a node on each of these machines, and what is asked is asked on the first.
    """

    def __init__(
        self, workers: int = 2, cpus: Sequence[int] = (), hosts: Sequence[Host] = (), store: int = STORE
    ) -> None:
        # Sockets lie in it: their paths must be short
        self.folder = Path(tempfile.mkdtemp(prefix="rf", dir="/tmp"))
        self.token_file = self.folder / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(secrets.token_hex(32))
        self._cpus = cpus or [1] * (len(hosts) or workers + 1)
        self._hosts, self._store = hosts, store
        self.prefix = hosts[0].prefix if hosts else []
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._commands: list[list[str]] = []
        self._retries = 3
        self.gcs, self.dashboard_port = free_ports(2)

    @property
    def dashboard(self) -> str:
        """Where jobs are handed in."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def gcs_address(self) -> str:
        """Where nodes and drivers join."""
        return f"{self._address(0)}:{self.gcs}"

    def _address(self, number: int) -> str:
        return self._hosts[number].address if self._hosts else "127.0.0.1"

    @property
    def environment(self) -> dict[str, str]:
        """That of a person who has the token; only its path is told."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        mine = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file), "OMP_NUM_THREADS": "1"}
        return {
            **kept,
            **mine,
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # a node that is told to end does so at once
        }

    def __enter__(self) -> Cluster:
        try:
            self._start()
            self._wait()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _start(self) -> None:
        dashboard = ["--dashboard-host", "127.0.0.1", "--dashboard-port", self.dashboard_port]
        head = ["--head", "--port", self.gcs, *dashboard]
        for number, cores in enumerate(self._cpus):
            agent, grpc, metrics = free_ports(3)
            joins = head if number == 0 else ["--address", self.gcs_address]
            ports = ["--dashboard-agent-listen-port", agent, "--dashboard-agent-grpc-port", grpc]
            ports += ["--metrics-export-port", metrics]
            mine = ["--node-ip-address", self._address(number), "--num-cpus", cores]
            mine += ["--object-store-memory", self._store, "--temp-dir", self.folder / f"n{number}"]
            inside = self._hosts[number].prefix if self._hosts else []
            command = [*inside, *RAY, *joins, *ports, *mine]
            self._commands.append([str(word) for word in command])
            self._nodes.append(self._spawned(number))
            if number == 0:
                self._wait_for(lambda: self.ask("print(1)") == "1", "head")

    def _spawned(self, number: int) -> subprocess.Popen[bytes]:
        with (self.folder / f"node-{number}.log").open("wb") as log:
            return subprocess.Popen(
                self._commands[number],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def _wait(self) -> None:
        count = "import ray; print(sum(n['Alive'] for n in ray.nodes()))"
        self._wait_for(lambda: self.ask(count) == str(len(self._nodes)), "nodes")

    def _wait_for(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + UP_SECONDS
        while not done():
            gone = [number for number, node in enumerate(self._nodes) if node.poll() is not None]
            if time.monotonic() > until or (gone and self._retries == 0):
                raise RuntimeError(f"{what}: {self.logs()}")
            for number in gone:  # Ray gives a node 30 seconds to start, which a busy machine may not keep
                self._retries -= 1
                self._nodes[number] = self._spawned(number)
            time.sleep(0.5)

    def ask(self, code: str, timeout: float = 120.0) -> str:
        """What a driver on the head node prints last; "" if it fails or is too slow."""
        start = (
            f"import ray; ray.init(address='{self.gcs_address}', logging_level='ERROR', "
            f"log_to_driver=False)\n"
        )
        command = [*self.prefix, sys.executable, "-c", start + code]
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""

    def lose(self, number: int) -> None:
        """Kill the raylet of a node, as if its machine lost its power; its workers end with it."""
        found = subprocess.run(
            ["pgrep", "--session", str(self._nodes[number].pid), "--exact", "raylet"],
            capture_output=True,
            text=True,
            check=True,
        )
        (raylet,) = found.stdout.split()
        os.kill(int(raylet), signal.SIGKILL)

    def logs(self) -> str:
        """The last lines of every node."""
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("node-*.log")))

    def end(self) -> None:
        """End the processes of every node, which are in a session of their own, and remove their folder."""
        for node in reversed(self._nodes):
            node.terminate()
        for node in reversed(self._nodes):
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)
                node.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

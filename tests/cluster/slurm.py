"""A real Slurm on this machine: a controller and two nodes of one core, whose messages munge signs.

It needs root and Debian's slurm-wlm and munge. Everything lies in one folder and listens on ports of its own,
so it meets no Slurm that the machine has already.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.cluster.nodes import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "srun")
CONFIGURATION = """
ClusterName=raffed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.s
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=30
MinJobAge=86400
SlurmdParameters=config_overrides
NodeName=node[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{second}] CPUs=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why no Slurm can be started here; "" if one can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons want root"


class Slurm:
    """A cluster with the nodes node1 and node2, for the length of a block."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rfslurm", dir="/tmp"))
        self.folder.chmod(0o755)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._jobs: list[int] = []
        first = _pair_of_ports()
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self.folder, controller=free_ports(1)[0], first=first, second=first + 1
            )
        )
        for name in ("state", "spool-node1", "spool-node2", "munge"):
            (self.folder / name).mkdir(mode=0o700)

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def submit(self, script: Path, *words: object, options: tuple[str, ...], env: Mapping[str, str]) -> int:
        """Hand a script in; the number of its job."""
        command = ["sbatch", "--parsable", "--export=ALL", *options, str(script), *map(str, words)]
        self._jobs.append(int(self._call(*command, env=env)))
        return self._jobs[-1]

    def cancel(self, job: int, *options: str) -> None:
        self._call("scancel", *options, str(job))

    def limit(self, job: int, minutes: int) -> None:
        """Give a job another time limit, counted from its start."""
        self._call("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    def about(self, job: int) -> dict[str, str]:
        """What Slurm says of a job, such as JobState and ExitCode."""
        words = self._call("scontrol", "show", "job", str(job), "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: int, seconds: float = 400.0) -> str:
        """The state in which a job ended, once all of its processes have."""
        until = time.monotonic() + seconds
        while (state := self.about(job)["JobState"]) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < until, (state, self.logs())
            time.sleep(0.5)
        return state

    def logs(self) -> str:
        """The last lines of every daemon."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))

    def end(self) -> None:
        """End the jobs that still run and the daemons, and remove the folder."""
        for job in self._jobs:
            with contextlib.suppress(RuntimeError, AssertionError):  # the daemons end in any case
                if self.about(job)["JobState"] in ("PENDING", "RUNNING"):
                    self.cancel(job)
                    self.wait(job, 60)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        key, socket = self.folder / "munge" / "key", self.folder / "munge.s"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(64))
        files = ("--pid-file", f"{self.folder}/munge/pid", "--log-file", f"{self.folder}/munge/log")
        seeds = ("--seed-file", f"{self.folder}/munge/seed")
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            "--key-file",
            str(key),
            "--socket",
            str(socket),
            *files,
            *seeds,
        )
        self._wait_for(socket.exists)
        self._daemon("slurmctld", "-D", "-i")
        for name in ("node1", "node2"):
            self._daemon("slurmd", "-D", "-N", name)
        self._wait_for(lambda: self._call("sinfo", "--noheader", "--format=%D %t", check=False) == "2 idle")

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.out.log").open("ab") as log:
            made = subprocess.Popen(command, stdout=log, stderr=log, env=self._env, start_new_session=True)
        self._daemons.append(made)

    @property
    def _env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _call(self, *command: str, env: Mapping[str, str] | None = None, check: bool = True) -> str:
        given = {**(env or self._env), "SLURM_CONF": str(self.folder / "slurm.conf")}
        done = subprocess.run(command, env=given, cwd=self.folder, capture_output=True, text=True, timeout=60)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}\n{self.logs()}")
        return done.stdout.strip()

    def _wait_for(self, done: object, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not done():  # type: ignore[operator]
            if time.monotonic() > until:
                raise RuntimeError(f"Slurm does not start: {self.logs()}")
            time.sleep(0.3)


def _pair_of_ports() -> int:
    """The first of two ports in a row that nothing listens on."""
    import socket

    for port in free_ports(50):
        try:
            with socket.create_server(("127.0.0.1", port + 1)):
                return port
        except OSError:
            continue
    raise RuntimeError("there are no two free ports in a row")

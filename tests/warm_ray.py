"""Workers of Ray's that begin where a fresh one is once it has imported torch, Ray and raffed.

To import them costs 2.5 CPU seconds, which is most of what an actor of a small run costs, and Ray starts a
process for every actor. So one process imports them, does nothing else, and is forked for every worker of the
Ray that begins within `warm_workers`. What Ray starts is warm_worker.py: it asks for the fork, hands over its
arguments, environment and streams, and ends when the fork does. The fork executes Ray's own program. Only the
seed of Python's hashes is the same in all workers. Commands in a process of their own start Ray as always.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.warm_worker import PLACE

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "torch",
    "pandas",
    "raffed.runtime.worker",
)  # not Ray, which reads its environment when it is imported


@contextlib.contextmanager
def warm_workers() -> Iterator[None]:
    """A Ray that begins in the body has warm workers. It must end in the body, too."""
    from ray._private.parameter import RayParams

    absent, started = RayParams.update_if_absent, list[subprocess.Popen[bytes]]()
    with tempfile.TemporaryDirectory(prefix="raffed-warm-") as folder:
        place = f"{folder}/socket"

        def with_warm_workers(self: RayParams, **values: Any) -> None:
            if "worker_path" in values and not started:
                started.append(_begun(place, values["worker_path"]))
            shim = {"worker_path": str(Path(__file__).with_name("warm_worker.py"))}
            absent(self, **{**values, **(shim if "worker_path" in values else {})})

        os.environ[PLACE] = place
        RayParams.update_if_absent = with_warm_workers
        try:
            yield
        finally:
            RayParams.update_if_absent = absent
            del os.environ[PLACE]
            for one in started:
                one.communicate()


def _begun(place: str, program: str) -> subprocess.Popen[bytes]:
    """Start the process that is forked. It ends with its standard input."""
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(place)
        line.listen(100)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.warm_ray", str(line.fileno()), program],
            cwd=ROOT,
            pass_fds=[line.fileno()],
            stdin=subprocess.PIPE,
            preexec_fn=lambda: None,  # it then counts as one of Ray's processes (endings.py)
        )


class Forks:
    """The forks of this process, and the workers of Ray's that wait for them."""

    def __init__(self, line: socket.socket, program: str) -> None:
        self._line, self._program = line, program
        self._waiting: dict[int, socket.socket] = {}
        self._ready = selectors.DefaultSelector()

    def serve(self) -> None:
        """Fork for everyone who asks, until the standard input ends."""
        ended, note = socket.socketpair()
        for end in (ended, note):
            end.setblocking(False)
        signal.set_wakeup_fd(note.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._line, ended, sys.stdin):
            self._ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    return self._end()
                if key.fileobj is self._line:
                    self._fork(self._line.accept()[0])
                elif key.fileobj is ended:
                    ended.recv(4096)
                    self._reap()
                elif key.data in self._waiting:  # whoever waited was killed
                    os.kill(key.data, signal.SIGKILL)
                    self._ready.unregister(key.fileobj)

    def _fork(self, asker: socket.socket) -> None:
        length, streams, *_ = socket.recv_fds(asker, 8, 3)
        asked = b""
        while len(asked) < int(length):
            asked += asker.recv(1 << 20)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(json.loads(asked), streams, self._program)
        for stream in streams:
            os.close(stream)
        self._waiting[pid] = asker
        self._ready.register(asker, selectors.EVENT_READ, pid)

    def _reap(self) -> None:
        while self._waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._waiting.pop(pid) as asker, contextlib.suppress(OSError, KeyError):
                self._ready.unregister(asker)
                asker.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _end(self) -> None:
        for pid in self._waiting:
            os.kill(pid, signal.SIGKILL)


def _become(wanted: dict[str, Any], streams: list[int], program: str) -> None:
    """Be the worker that Ray wanted, in this forked process."""
    os.setpgid(0, 0)  # Ray kills the whole group of a worker that has ended
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.closerange(3, 1 << 12)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    sys.path[0] = str(Path(program).parent)
    sys.argv = [program, *wanted["words"]]
    runpy.run_path(program, run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    Forks(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).serve()

"""A contestant seen from outside: a process that answers lines, and may die, hang or be absent."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contestant import INTERPRETERS
from benchmarks.memory import tree

ROOT = Path(__file__).resolve().parents[1]
QUIET = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "FLWR_TELEMETRY_ENABLED": "0",
}


class GoneError(Exception):
    """The contestant is absent, died or hung; the message says which."""


def command(name: str, workload: str) -> list[str]:
    """The command that runs a contestant, in the interpreter it needs."""
    python = os.environ.get(INTERPRETERS.get(name, ""), sys.executable)
    return [python, "-m", "benchmarks.contestant", name, workload]


class Process:
    """Started at once; `start` waits until it is ready."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (lives as long as the process)
        self._began = time.perf_counter()
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **QUIET, **(environment or {})},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
            )
        except OSError as error:
            raise GoneError(f"absent: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, timeout: float) -> float:
        """Seconds from the process's start until it could begin round 1."""
        answer = self.hear(timeout)
        if "absent" in answer:
            self.close()
            raise GoneError(f"absent: {answer['absent']}")
        return time.perf_counter() - self._began

    def ask(self, timeout: float, **order: Any) -> dict[str, Any]:
        self.tell(**order)
        return self.hear(timeout)

    def tell(self, **order: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone("died") from error

    def hear(self, timeout: float) -> dict[str, Any]:
        """The next answer; GoneError, and nothing left of it, if none comes."""
        until = time.monotonic() + timeout
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                # its own children may hold the pipe open after it died, so its end is asked for as well
                dead = self._process.poll() is not None
                if selector.select(0 if dead else 1):
                    part = os.read(self._process.stdout.fileno(), 65536)
                    self._rest += part
                    if part:
                        continue
                    dead = True
                if dead:
                    raise self._gone("died")
                if time.monotonic() > until:
                    raise self._gone(f"no answer in {timeout:.0f} s")
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pause(self) -> None:
        """Stop it and all that it started: an idle Ray takes 6 to 7 % of a core from whoever is being
        timed.
        """
        for process in tree(self.pid):
            with contextlib.suppress(psutil.Error):
                process.suspend()

    def resume(self) -> None:
        for process in tree(self.pid):
            with contextlib.suppress(psutil.Error):
                process.resume()

    def close(self) -> None:
        """Ask it to end, and end it."""
        self.resume()
        with contextlib.suppress(GoneError):
            self.tell(do="quit")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self.kill()

    def _gone(self, what: str) -> GoneError:
        self.kill()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return GoneError(
            f"{what} (exit {self._process.returncode}): {lines[-1][:300] if lines else 'it said nothing'}"
        )

    def kill(self) -> None:
        """Kill it and all that it started and left; Ray's processes lead groups of their own."""
        left = tree(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()

"""Commands of raffed as processes that are struck: what comes of it, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

SECONDS = 90.0  # from the strike until the command has ended, and from then until nothing of it is left
MARK = "RAFFED_TEST_MARK"
ENDED_BY_RAY = "The program will terminate."  # Ray's client says so where it ends a process without Ray
TARGETS = {  # how the command line of a process of Ray's begins, or how its program is called
    "client actor": ("ray::ClientActor",),
    "driver actor": ("ray::Driver",),
    "agent": ("ray::DashboardAgent", "ray::RuntimeEnvAgent"),
    "gcs_server": ("gcs_server",),
    "raylet": ("raylet",),
}


class Ended(NamedTuple):
    """What came of a strike: exit code, seconds until the end, standard error, and what is left."""

    code: int
    seconds: float
    err: str
    left: list[psutil.Process]


class Command:
    """A command of raffed that leads a process group, as under a shell, with its streams in a folder."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._out, self._errors, self._mark = folder / "out.log", folder / "err.log", str(folder)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", MARK: self._mark}
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "raffed", *words],
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                preexec_fn=_default_signals,
            )
        self.pid = self._process.pid

    def lines(self) -> list[str]:
        """What standard output has shown so far."""
        return self._out.read_text().splitlines()

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def until(self, shown: str) -> None:
        """Wait until standard output has a line like this."""
        for _ in range(3000):
            if any(re.search(shown, line) for line in self.lines()):
                return
            assert not self.ends_within(0.1), self.errors()
        raise AssertionError(f"{shown} was not shown in five minutes")

    def family(self) -> list[psutil.Process]:
        """Every process with this command's environment, and all their children.

        Ray's workers write their titles over their environment, but they are children of the raylet.
        """
        found = {}
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(MARK) == self._mark:
                    found.update({each.pid: each for each in (one, *one.children(recursive=True))})
        return [one for one in found.values() if _lives(one)]

    def pids(self, target: str) -> list[int]:
        """The processes that a target names now. For a group that is its leader, negative."""
        if target in ("command", "group"):
            return [self.pid if target == "command" else -self.pid]
        family = self.family()
        if target == "everything":
            return [one.pid for one in family]
        return [one.pid for one in family if _title(one).startswith(TARGETS[target])]

    def ended(self, strike: Callable[[], object]) -> Ended:
        """What comes of a strike that ends the command."""
        known, began = self.family(), time.monotonic()
        strike()
        code = self._process.wait(600)
        seconds = time.monotonic() - began
        psutil.wait_procs(known, timeout=SECONDS)
        left = [one for one in {*known, *self.family()} if _lives(one)]
        return Ended(code, seconds, self.errors(), left)

    def end(self) -> None:
        """Kill whatever is left of the command."""
        for one in self.family():
            with contextlib.suppress(psutil.Error):
                one.kill()
        self.ends_within(10)


Begin = Callable[[list[str]], Command]


def strike(pids: list[int], number: signal.Signals) -> int:
    """Send a signal to processes, or to groups whose leader is negative. Returns how many there were."""
    there = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            there += 1
    return there


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return process.name() if process.name() in TARGETS else " ".join(words)
    return ""


def _default_signals() -> None:
    """nohup ignores SIGHUP, and a shell ignores SIGINT for what it starts in the background."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)

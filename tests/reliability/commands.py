"""Commands of raffed as processes that are struck: what comes of it, and what is left of them.

A command is a fresh process, or one that is forked from a process which has imported torch already
(tests/warm.py). Both lead a session and a process group of their own, as under a shell or a batch system. A
forked one saves the three CPU seconds of the imports. Its moments of a strike begin where the imports end, so
a share of the strikes is for fresh ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import warm

RAFFED = [sys.executable, "-m", "raffed"]
SECONDS = 90.0  # from the strike until the command has ended, and from then until nothing of it is left
POLL = 0.02


class Ended(NamedTuple):
    """What came of a strike: exit code, seconds until the end, standard error, and what is left."""

    code: int
    seconds: float
    err: str
    left: list[Process]


class Command:
    """A command of raffed that leads a process group, with its streams in a folder.

    `environment` is added to that of this process. `within`: the words of a program that executes it; only if
    it is a fresh process.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        fresh: bool = True,
        environment: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.log, self.errors = folder / "out.log", folder / "err.log"
        self.mark = f"RAFFED_TEST_MARK={folder}"
        own = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "RAFFED_TEST_MARK": str(folder)}
        surroundings = {**os.environ, **(environment or {}), **own}
        for stream in (self.log, self.errors):
            stream.write_bytes(b"")
        self._process = (
            _fresh([*within, *RAFFED, *words], self.log, self.errors, surroundings) if fresh else None
        )
        self.began = time.monotonic()
        self.pid = (
            self._process.pid
            if self._process is not None
            else warm.begin(["-m", "raffed", *words], self.log, self.errors, env=surroundings)
        )
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while the command runs."""
        if self._code is None and self._process is not None:
            self._code = self._process.poll()
        elif self._code is None and _state(self.pid) in ("Z", "X", ""):
            self._code = warm.reap(self.pid)
        return self._code

    def wait(self, seconds: float = 600.0) -> int:
        """The exit code, once the command has ended; TimeoutError after so many seconds."""
        until = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} still runs after {seconds:.0f} s")
            time.sleep(POLL)
        return code

    def until(self, shown: str) -> None:
        """Wait until standard output has a line like this."""
        for _ in range(3000):
            if re.search(shown, self.log.read_text(), re.MULTILINE):
                return
            assert self.poll() is None, self.errors.read_text()
            time.sleep(0.1)
        raise AssertionError(f"{shown} was not shown in five minutes")

    def lines(self) -> int:
        """How many lines standard output has."""
        return self.log.read_bytes().count(b"\n")

    def family(self) -> list[Process]:
        """Every process that has this command's environment or session, and all their children."""
        alive = [one for one in processes() if one.state not in ("Z", "X")]
        found = {
            one.pid
            for one in alive
            if one.pid == self.pid or one.session == self.pid or self.mark in _environment(one.pid)
        }
        more = True
        while more:
            below = {one.pid for one in alive if one.parent in found} - found
            found, more = found | below, bool(below)
        return [one for one in alive if one.pid in found]

    def left(self, known: set[int]) -> list[Process]:
        """Which of these processes, and of those of this command, still live after SECONDS."""
        until = time.monotonic() + SECONDS
        while True:
            alive = [one for one in processes() if one.state not in ("Z", "X")]
            here = [one for one in alive if one.pid in known or self.mark in _environment(one.pid)]
            if not here or time.monotonic() > until:
                return here
            time.sleep(0.1)

    def ended(self, strike: Callable[[], None]) -> Ended:
        """What comes of a strike that ends the command."""
        known, began = {one.pid for one in self.family()}, time.monotonic()
        strike()
        code = self.wait()
        seconds = time.monotonic() - began
        return Ended(code, seconds, self.errors.read_text(), self.left(known))

    def end(self) -> None:
        """Kill whatever is left of the command."""
        for one in self.family():
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            self.wait(10)


def _fresh(
    words: Sequence[str], log: Path, errors: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("wb") as out, errors.open("wb") as err:
        return subprocess.Popen(
            words,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=_default_signals,
        )


def _default_signals() -> None:
    """nohup ignores SIGHUP, and a shell ignores SIGINT for what it starts in the background."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _environment(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


class Starvation:
    """For how long the processes of a command were ready to run and got no core, since it was made.

    Processes that began later are counted from their beginning. Of each only the main thread is counted.
    """

    def __init__(self, command: Command) -> None:
        self._command, self._now = command, dict[int, float]()
        self._before = dict[int, float]()
        self.seconds()
        self._before = dict(self._now)

    def seconds(self) -> float:
        for one in self._command.family():
            with contextlib.suppress(OSError, IndexError, ValueError):
                said = Path(f"/proc/{one.pid}/schedstat").read_text().split()
                self._now[one.pid] = int(said[1]) / 1e9
        return sum(self._now.values()) - sum(self._before.values())


Begin = Callable[[list[str]], Command]


class Process(NamedTuple):
    """A process. `state` is "Z" or "X" for one that has ended."""

    pid: int
    name: str
    state: str
    parent: int
    session: int


def processes() -> Iterator[Process]:
    for name in filter(str.isdigit, os.listdir("/proc") if Path("/proc").exists() else []):
        try:
            # The name is in brackets and may contain any character
            before, _, after = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")
        except OSError:  # the process has ended
            continue
        state, parent, _, session = after.split()[:4]
        yield Process(int(name), before.partition("(")[2], state, int(parent), int(session))

"""Commands of raffed as processes that tests strike: what comes of it, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from raffed.runtime.ray_backend.keeper import Process, processes

RAFFED = [sys.executable, "-m", "raffed"]
SECONDS = 10.0  # from the strike until the command has ended, and from then until nothing of it is left


class Ended(NamedTuple):
    code: int
    seconds: float
    err: str
    left: list[Process]


class Command:
    """A command of raffed that leads a process group, as under a shell or a batch system."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.log, self.errors, self.mark = (
            folder / "out.log",
            folder / "err.log",
            f"RAFFED_TEST_MARK={folder}",
        )
        name, _, value = self.mark.partition("=")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", name: value}
        with self.log.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [*RAFFED, *words],
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
            )

    def until(self, shown: str) -> None:
        """Wait until standard output has a line like this."""
        for _ in range(1200):
            if re.search(shown, self.log.read_text(), re.MULTILINE):
                return
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.1)
        raise AssertionError(f"{shown} was not shown in two minutes")

    def family(self) -> list[Process]:
        """Every process that has this command's environment, itself too."""
        return [
            one for one in processes() if one.state not in ("Z", "X") and self.mark in _environment(one.pid)
        ]

    def ended(self, strike: Callable[[], None]) -> Ended:
        """What comes of a strike."""
        family, began = self.family(), time.monotonic()
        strike()
        code = self.process.wait(90)
        seconds = time.monotonic() - began
        until = time.monotonic() + SECONDS
        known = {one.pid for one in family}
        while (left := [one for one in self.family() if one.pid in known]) and time.monotonic() < until:
            time.sleep(0.2)
        return Ended(code, seconds, self.errors.read_text(), left)


def _environment(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


Begin = Callable[[list[str]], Command]

"""Folders of runs and of a sweep that are damaged: made once by commands, copied for every case."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.commands import POLL, Command
from tests.reliability.executions import TINY
from tests.reliability.strikes import LONGEST

RUN = ("run", "--method", "map", *TINY, "--validation", "0.1", "--execution", "serial", "--json")
ROUNDS = ("--rounds", "6", "--checkpoint-every", "2")
SWEEP = ("tune", *TINY, "--rounds", "2", "--seeds", "1", "--grid", "local.lr=0.01,0.1", "--json")
METHODS = ("--method", "fedavg", "--method", "fedrs")
CLOCK = (
    *("--speeds", "lognormal", "--server", "fedbuff", "--buffer", "2"),
    *("--rounds", "12", "--checkpoint-every", "2"),
)


@dataclass(frozen=True)
class Source:
    """A folder to be damaged, the commands that read it, and how often it is chosen."""

    name: str
    folder: Path
    commands: tuple[str, ...]
    often: int


def sources(work: Path, *, sweeps: bool) -> list[Source]:
    """Runs that are finished, stopped, and stopped in virtual time, and a finished sweep."""
    made = [
        Source("finished run", work / "finished", ("resume", "verify", "report"), often=3),
        Source("stopped run", work / "stopped", ("resume", "resume", "verify", "report"), often=4),
        Source("asynchronous run", work / "asynchronous", ("resume", "verify"), often=2),
    ]
    if not made[0].folder.exists():
        _ended([*RUN, *ROUNDS, "--out", str(made[0].folder)], work / "finished-logs")
    if not made[1].folder.exists():
        _stopped([*RUN, *ROUNDS, "--out", str(made[1].folder)], work / "stopped-logs")
    if not made[2].folder.exists():
        _stopped([*RUN, *CLOCK, "--out", str(made[2].folder)], work / "asynchronous-logs")
    if sweeps:
        commands = ("tune", *("report",) * 15)  # `tune` starts Ray, which costs as much as twenty others
        made.append(Source("finished sweep", work / "sweep", commands, often=3))
        if not made[3].folder.exists():
            _ended([*SWEEP, *METHODS, "--out", str(made[3].folder)], work / "sweep-logs")
    return made


def _ended(words: list[str], logs: Path) -> None:
    logs.mkdir(parents=True)
    command = Command(words, logs, fresh=False)
    if command.wait(LONGEST) != 0:
        raise RuntimeError(f"{' '.join(words)}: {command.errors.read_text()[-600:]}")


def _stopped(words: list[str], logs: Path) -> None:
    """Stop a run after its fourth round or a little later."""
    logs.mkdir(parents=True)
    command = Command(words, logs, fresh=False)
    while command.lines() < 3 and command.poll() is None:
        time.sleep(POLL / 10)
    os.kill(command.pid, signal.SIGTERM)
    if command.wait(LONGEST) != 143:
        raise RuntimeError(f"{' '.join(words)} was not stopped: {command.errors.read_text()[-600:]}")

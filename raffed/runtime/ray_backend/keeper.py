"""A small process beside a command that started Ray: when the command is gone, it ends what is left of that
Ray.

Ray's own processes end with the command, for the kernel kills them. What these started (agents, workers) has
to notice that by itself: the agents of a Ray whose head process is dead were still there 36 s later. Run as
`python -I -S keeper.py`; it imports the standard library alone. Every line of its standard input names a
session (its leader's process id). The end of the input means that the command is gone, or has ended its Ray.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

PATIENCE = 5.0  # seconds in which new processes of these sessions are looked for
POLL = 0.1


class Process(NamedTuple):
    """What the system says of a process. state: "Z" and "X" are those of one that has ended."""

    pid: int
    name: str
    state: str
    parent: int
    session: int


def processes() -> Iterator[Process]:
    """Every process (Linux; elsewhere none is found)."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            found = _process(name) if name.isdigit() else None
            if found is not None:
                yield found


def _process(number: str) -> Process | None:
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            before, _, after = file.read().rpartition(")")  # the name is in brackets, and may hold anything
        state, parent, _, session = after.split()[:4]
        return Process(int(number), before.partition("(")[2], state, int(parent), int(session))
    except (OSError, ValueError):  # it is gone
        return None


def members(sessions: Collection[int]) -> list[int]:
    """The processes of these sessions that still run."""
    return [one.pid for one in processes() if one.session in sessions and one.state not in ("Z", "X")]


def end_all(sessions: Collection[int], patience: float = PATIENCE) -> None:
    """Kill every process of these sessions, and those that they start meanwhile."""
    until = time.monotonic() + patience
    for session in sessions:
        with contextlib.suppress(OSError):
            os.killpg(session, signal.SIGKILL)
    while (left := members(sessions)) and time.monotonic() < until:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(POLL)


def _told() -> set[int]:
    """The sessions that the input names, once it has ended or the process that began this one has."""
    poll, said = select.poll(), b""
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    parent = -1
    if hasattr(os, "pidfd_open"):  # a copy of the command made by fork may hold the input open
        with contextlib.suppress(OSError):
            parent = os.pidfd_open(os.getppid())
            poll.register(parent, select.POLLIN)
    while True:
        ready = [handle for handle, _ in poll.poll()]
        more = os.read(sys.stdin.fileno(), 4096) if sys.stdin.fileno() in ready else b""
        said += more
        if not more:
            return {int(line) for line in said.split() if line.isdigit()}


def _keep() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it stays until all the others are gone
    end_all(_told())


if __name__ == "__main__":
    _keep()

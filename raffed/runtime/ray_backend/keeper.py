"""A small process that ends what is left of a Ray, after the command that started it has gone.

Ray's own processes end with the command, because the kernel kills them. Processes that these started (agents,
workers) have to notice it themselves. Agents of a Ray whose head process was dead were still there 36 s
later. It is run as `python -I -S keeper.py` and imports only the standard library. Its arguments and every
line of its standard input name sessions, by the process id of their leader. The end of the input means that
the command has gone, or that it has ended its Ray.

If a process that Ray cannot do without ends, Ray's client may end the command before that could say a word.
So a line with a JSON list [file, words] gives the keeper the last words of a command whose work is in this
file. The line "hush" says that the command has said them itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

PATIENCE = 5.0  # seconds for which new processes of these sessions are looked for
POLL = 0.1


class Process(NamedTuple):
    """What the system says about a process. `state` is "Z" or "X" for a process that has ended."""

    pid: int
    name: str
    state: str
    parent: int
    session: int


def processes() -> Iterator[Process]:
    """Yield every process. Only Linux is supported; on other systems none is found."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            found = _process(name) if name.isdigit() else None
            if found is not None:
                yield found


def _process(number: str) -> Process | None:
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            # The name is in brackets and may contain any character
            before, _, after = file.read().rpartition(")")
        state, parent, _, session = after.split()[:4]
        return Process(int(number), before.partition("(")[2], state, int(parent), int(session))
    except (OSError, ValueError):  # the process has ended
        return None


def members(sessions: Collection[int]) -> list[int]:
    """Return the processes of these sessions that still run."""
    return [one.pid for one in processes() if one.session in sessions and one.state not in ("Z", "X")]


def end_all(sessions: Collection[int], patience: float = PATIENCE) -> None:
    """Kill every process of these sessions, and those that they start in the meantime."""
    until = time.monotonic() + patience
    for session in sessions:
        with contextlib.suppress(OSError):
            os.killpg(session, signal.SIGKILL)
    while (left := members(sessions)) and time.monotonic() < until:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(POLL)


def _told() -> list[bytes]:
    """Return the lines of arguments and input, once the input or the parent process has ended."""
    poll, said = select.poll(), "".join(f"{one}\n" for one in sys.argv[1:]).encode()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    parent = -1
    # A fork of the command may keep the input open, so the parent is watched too
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            parent = os.pidfd_open(os.getppid())
            poll.register(parent, select.POLLIN)
    while True:
        ready = [handle for handle, _ in poll.poll()]
        more = os.read(sys.stdin.fileno(), 4096) if sys.stdin.fileno() in ready else b""
        said += more
        if not more:
            return said.splitlines()


def _say(lines: list[bytes]) -> None:
    """Print last words if the work that they are about has begun."""
    for line in lines:
        file, words = json.loads(line)
        with contextlib.suppress(OSError):
            if os.path.exists(file):
                print(words, file=sys.stderr, flush=True)


def _keep() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it must outlive all the others
    told = _told()
    if b"hush" not in told:
        _say([line for line in told if line.startswith(b"[")][-1:])
    end_all({int(line) for line in told if line.isdigit()})


if __name__ == "__main__":
    _keep()

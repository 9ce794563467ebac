"""Which process of a command is which: the targets that a strike can have. Whether a command ended as the
documentation says: exit code, last line, no traceback, in time.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.reliability.commands import Command, Process

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
ENDING = ("command", "group", "everything")  # a signal to these ends the command
LOST = ("gcs_server", "raylet", "agent")  # without these no Ray goes on
ACTORS = ("client actor", "driver actor", "idle worker", "monitor")
TRIALS = ("trial", "idle worker", "monitor")
BY_TITLE = {  # how the command line of a process begins
    "ray::ClientActor": "client actor",
    "ray::Driver": "driver actor",
    "ray::IDLE": "idle worker",
    "ray::ImplicitFunc": "trial",
    "ray::DashboardAgent": "agent",
    "ray::RuntimeEnvAgent": "agent",
}
BY_FILE = {  # what the command line of a process contains
    "dashboard/dashboard.py": "monitor",
    "monitor.py": "monitor",
    "seed-process": "seed process",
}


def words(pid: int) -> str:
    """The command line of a process, with spaces."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def kind_of(process: Process) -> str:
    """The target that a process is, or its name."""
    if process.name in ("gcs_server", "raylet"):
        return process.name
    line = words(process.pid)
    for title, kind in BY_TITLE.items():
        if line.startswith(title):
            return kind
    for part, kind in BY_FILE.items():
        if part in line:
            return kind
    return line[:40] or process.name


def found(command: Command, target: str) -> list[int]:
    """The processes that a target names now. For a group that is its leader, negative."""
    if target == "command":
        return [command.pid]
    if target == "group":
        return [-command.pid]
    family = command.family()
    if target == "everything":
        return [one.pid for one in family]
    return [one.pid for one in family if one.pid != command.pid and kind_of(one) == target]


def strike(pids: list[int], number: signal.Signals) -> int:
    """Send a signal to processes, or to groups whose leader is negative. Returns how many there were."""
    there = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        there += 1
    return there


HANG = 30.0  # seconds without a core are not counted
DOCUMENTED = {0, 1, 2, 129, 130, 143}
ENDED_BY_RAY = "The program will terminate."  # Ray's client says so where it ends a process without Ray
TRACEBACK = "Traceback (most recent call last)"


def wrong_code(code: int, number: signal.Signals | None, target: str) -> str:
    """What is wrong with an exit code; empty if it is one that the documentation names.

    A process that a signal ends before it could say anything has the code of the signal: -15 here is 143 in a
    shell.
    """
    if code == 0:
        return ""
    if target in ENDING and number is not None:
        return "" if code in (-number, 128 + number) else f"exit code {code} after {number.name}"
    return "" if code in (1, 2) else f"exit code {code}"  # 2: while Ray was starting


def wrong_words(code: int, command: Command) -> str:
    """What is wrong with what a command said; empty if it is one line that says how it ended."""
    err, out = (path.read_text(errors="replace") for path in (command.errors, command.log))
    if TRACEBACK in err + out:
        return "traceback"
    if code <= 0:
        return ""
    last = (out.strip().splitlines() or [""])[-1]
    said = ENDED_BY_RAY in err or any(line.startswith("raffed: ") for line in err.splitlines())
    return "" if said or '"event": "stopped"' in last else "no line of raffed's"

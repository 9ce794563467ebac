"""Whether a command ended as the documentation says: exit code, last line, no traceback, in time."""

from __future__ import annotations

import signal

from tests.reliability.commands import Command
from tests.reliability.targets import ENDING

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

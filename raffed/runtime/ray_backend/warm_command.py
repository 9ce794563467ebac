"""Continue a command that joins the Ray of `raffed up` in a fork of its process that has imported torch.

A command of raffed needs torch itself, and importing it takes two seconds or more. With `--address warm`, the
process from which that Ray's workers are forked (warm_process.py) has done so. The command then hands its
words, streams and environment over to a fork, passes signals on, and ends with the fork's exit code. Where
this is not possible, it goes on by itself, which takes more time and changes no result.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType

from raffed.errors import UsageError
from raffed.runtime.ray_backend.address import WARM
from raffed.runtime.ray_backend.standing_ray import joined_ray, standing_folder
from raffed.runtime.ray_backend.warm_worker import SOCKET, ask_for_fork

PROGRAM = Path(__file__).parents[2] / "__main__.py"
PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")


def asks_for_it(words: Sequence[str]) -> bool:
    """Return whether a command is to join the Ray of `raffed up`, as far as its words say."""
    return f"--address={WARM}" in words or ("--address", WARM) in pairwise(words)


def continued(words: Sequence[str]) -> int | None:
    """Execute this command in a fork of the process that has imported torch.

    Args:
        words: The command and its options, without the program.

    Returns:
        The exit code, or None if the command has to go on by itself.
    """
    if sys.platform != "linux" or not asks_for_it(words) or "torch" in sys.modules:
        return None
    try:
        joined_ray()
    except UsageError:  # the command itself will say so
        return None
    if (folder := standing_folder()) is None:
        return None
    begun = [str(PROGRAM), *words], list(sys.orig_argv)
    if (line := ask_for_fork(str(folder / SOCKET), *begun)) is None:
        return None
    with line, _passed_on(line):
        return _code(line)


def _code(line: socket.socket) -> int:
    try:
        return int(line.recv(100) or b"1")
    except OSError:  # the Ray has ended, and its forks with it
        return 1


@contextmanager
def _passed_on(line: socket.socket) -> Iterator[None]:
    """Send signals that this process gets to the fork. When this process is stopped, so is the fork."""

    def send(number: int, _: FrameType | None) -> None:
        with suppress(OSError):  # the fork has ended
            line.send(bytes([number]))

    def stop(_: int, frame: FrameType | None) -> None:
        send(signal.SIGSTOP, frame)
        os.kill(os.getpid(), signal.SIGSTOP)

    passed = [number for name in PASSED_ON if _is_heard(number := signal.Signals[name])]
    before = {number: signal.signal(number, send) for number in passed}
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_heard(number: int) -> bool:
    """Return whether a signal is passed on: not if it is ignored, as SIGHUP is under nohup.

    A shell lets commands in the background ignore Ctrl-C, but a run listens to it anyway (cli/signals.py).
    """
    return number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) != signal.SIG_IGN


__all__ = ["asks_for_it", "continued"]

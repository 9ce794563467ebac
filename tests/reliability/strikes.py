"""One signal to one process of a command: when it is sent, to whom, and what is seen of it at once."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass

from tests.reliability.commands import POLL, Command, Starvation
from tests.reliability.executions import Execution
from tests.reliability.targets import ENDING, HANG, SIGNALS, found, strike, wrong_code, wrong_words

MOST_STARVED = 0.8  # processes that wait for a core at the same time are counted several times
UNREGISTERED = 60.0  # seconds after which Ray replaces a worker that died before it had registered
LONGEST = 900.0  # seconds for a command that nothing strikes


@dataclass(frozen=True)
class Strike:
    """A signal that was sent."""

    target: str
    signal: signal.Signals
    seconds: float  # from the start of the process
    shown: int  # lines that the command had shown
    outcome: str  # as far as it is seen at once
    after: float = 0.0  # seconds from the signal until that was seen


def struck(
    command: Command, target: str, execution: Execution, seconds: float, dice: random.Random
) -> Strike:
    """Wait for a random moment and for the target, send a random signal, and judge what comes of it.

    `target` is a word of targets.py; `seconds` is how long the whole command may take, for moments by the
    clock.
    """
    number = dice.choice(SIGNALS)
    _wait_for_moment(command, target, execution, seconds, dice)
    target, pids = _await_target(command, target, execution, dice)
    known = {one.pid for one in command.family()}
    waited, shown, began = Starvation(command), command.lines(), time.monotonic()
    moment = round(began - command.began, 2)
    if command.poll() is not None or not strike(pids if target in ENDING else pids[:1], number):
        return Strike(target, number, moment, shown, "too late")
    outcome = _seen(command, target, waited) or _after(command, target, number, known)
    return Strike(target, number, moment, shown, outcome, round(time.monotonic() - began, 2))


def _wait_for_moment(
    command: Command, target: str, execution: Execution, seconds: float, dice: random.Random
) -> None:
    """A random moment: of the whole time, or some time after a random round was shown."""
    if target == "idle worker":  # Ray has some only until the run begins
        return
    if target in ENDING and dice.random() < 0.5:
        until = command.began + dice.uniform(0.0, seconds)
        while time.monotonic() < until and command.poll() is None:
            time.sleep(POLL)
        return
    more, began = dice.randint(1, max(2, execution.rounds // 6)), time.monotonic()
    wanted = command.lines() + more
    while command.lines() < wanted and command.poll() is None and time.monotonic() - began < LONGEST:
        time.sleep(POLL)
    time.sleep(dice.uniform(0.0, 0.2))


def _await_target(
    command: Command, target: str, execution: Execution, dice: random.Random
) -> tuple[str, list[int]]:
    """The processes of a target, once there is one."""
    began = time.monotonic()
    while not (pids := found(command, target)) and command.poll() is None:
        if target == "idle worker" and command.lines():
            target = dice.choice([one for one in execution.passing if one != target])
        if time.monotonic() - began > 4 * HANG:
            break
        time.sleep(POLL)
    return target, pids


def _seen(command: Command, target: str, waited: Starvation) -> str:
    """Wait until the command has ended or shows more. Returns what is wrong; empty if nothing is so far."""
    began, shown = time.monotonic(), command.lines()
    longest = HANG + (UNREGISTERED if target == "idle worker" else 0.0)
    while command.poll() is None:
        if target not in ENDING and command.lines() > shown:
            return ""
        passed = time.monotonic() - began
        if passed > longest and passed - min(waited.seconds(), MOST_STARVED * passed) > longest:
            return "hang"
        time.sleep(POLL)
    return ""


def _after(command: Command, target: str, number: signal.Signals, known: set[int]) -> str:
    """What is wrong with the end of a command; "equal" if nothing is, or if it still runs."""
    code = command.poll()
    if code is None:
        return "equal"
    return how_it_ended(command, code, number, target, known) or "equal"


def how_it_ended(
    command: Command, code: int, number: signal.Signals | None, target: str, known: set[int]
) -> str:
    """What is wrong with the end of a command; empty if nothing is."""
    if why := wrong_code(code, number, target):
        return why
    left = [one for one in command.left(known) if one.pid != command.pid]
    if why := wrong_words(code, command):
        return why
    return f"left behind: {', '.join(one.name for one in left)}" if left else ""

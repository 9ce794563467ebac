"""Contestants in turn: blocks of rounds one after the other, so that a disturbed machine disturbs all of them
alike.

Whoever waits is stopped, processes of its own included.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.memory import sampled
from benchmarks.process import GoneError, Process

BASE = "bare"  # ratios are to this one
TIMEOUT = 900.0  # seconds that a start or a block may take
MEMORY_ROUNDS = 3  # at most
AWAKE = 0.5  # seconds after it was stopped in which Ray may do what its timers missed


@dataclass
class Lane:
    """What is known of one contestant.

    blocks: median seconds a round, one a repetition. steps: of every timed round, in order. note: why it is
    absent or gone.
    """

    name: str
    process: Process | None = None
    start_s: float | None = None
    first_s: float | None = None
    blocks: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    accuracy: float | None = None
    pss_mib: float | None = None
    note: str | None = None


def race(
    names: Sequence[str], command: Callable[[str], list[str]], repetitions: int, rounds: int
) -> list[Lane]:
    """Every contestant, after a block to warm up; the order moves on by one each repetition. `command`:
    by name.
    """
    lanes = [Lane(name) for name in names]
    try:
        for lane in lanes:
            _guarded(lane, lambda lane: _start(lane, command(lane.name)))
        for lane in lanes:
            _guarded(lane, lambda lane: _block(lane, rounds, warm=True))
        for repetition in range(repetitions):
            turn = repetition % len(lanes)
            for lane in lanes[turn:] + lanes[:turn]:
                _guarded(lane, lambda lane: _block(lane, rounds))
        for lane in lanes:
            _guarded(lane, lambda lane: _look(lane, min(rounds, MEMORY_ROUNDS)))
    except BaseException:
        _each(lanes, Process.kill)
        raise
    _each(lanes, Process.close)
    return lanes


def _each(lanes: Sequence[Lane], end: Callable[[Process], None]) -> None:
    for lane in lanes:
        if lane.process is not None:
            end(lane.process)


def _guarded(lane: Lane, act: Callable[[Lane], None]) -> None:
    """Do it with the contestant awake, unless it is gone; if it goes now, keep why."""
    if lane.note is not None:
        return
    try:
        if lane.process is not None:
            lane.process.resume()
            time.sleep(AWAKE)
        act(lane)
        if lane.process is not None:
            lane.process.pause()
    except GoneError as gone:
        lane.note, lane.process = str(gone), None


def _start(lane: Lane, command: list[str]) -> None:
    process = Process(command)
    lane.process = process
    lane.start_s = process.start(TIMEOUT)


def _block(lane: Lane, rounds: int, warm: bool = False) -> None:
    assert lane.process is not None
    answer = lane.process.ask(TIMEOUT, do="block", rounds=rounds)
    if warm:
        lane.first_s = answer["seconds"][0]
    else:
        lane.blocks.append(statistics.median(answer["seconds"]))
        lane.steps += answer["steps"]


def _look(lane: Lane, rounds: int) -> None:
    """Accuracy after the timed rounds; then peak memory in rounds that are not timed, because looking
    costs time.
    """
    assert lane.process is not None
    lane.accuracy = lane.process.ask(TIMEOUT, do="accuracy")["accuracy"]
    peaks, stop = {"pss": 0.0, "rss": 0.0}, threading.Event()
    watcher = threading.Thread(target=sampled, args=(lane.process.pid, peaks, stop))
    watcher.start()
    try:
        lane.process.ask(TIMEOUT, do="block", rounds=rounds)
    finally:
        stop.set()
        watcher.join()
    lane.pss_mib = peaks["pss"]


def summary(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """A row a contestant; ratios to BASE of the same repetition, for as many repetitions as both made."""
    base = next(lane for lane in lanes if lane.name == BASE)
    rows = []
    for lane in lanes:
        ratios = [own / floor for own, floor in zip(lane.blocks, base.blocks, strict=False)]
        rows.append(
            {
                "contestant": lane.name,
                "seconds": statistics.median(lane.blocks) if lane.blocks else None,
                "ratio": statistics.median(ratios) if ratios else None,
                "ratios": [round(r, 3) for r in ratios],
                "steps": sorted(set(lane.steps)),
                "same_steps": lane.steps == base.steps[: len(lane.steps)],
                "accuracy": lane.accuracy,
                "start_s": lane.start_s,
                "first_round_s": lane.first_s,
                "pss_mib": lane.pss_mib,
                "blocks": lane.blocks,
                "note": lane.note,
            }
        )
    return rows

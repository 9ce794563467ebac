"""How fast a run progresses, and how long it has waited."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from raffed.cli.numbers import duration

if TYPE_CHECKING:
    from raffed.experiments.events import RoundEvent

RECENT = 10  # number of last rounds from which speed and time left are computed


class Waiting:
    """A text that says how long it has waited, whenever it is shown."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def __format__(self, how: str) -> str:
        return f"loading torch, data and actors, {duration(time.monotonic() - self._since)}"


class Overall:
    """Which of several runs it is, and the time that all that are left may take.

    Args:
        total: Number of runs, those that were finished before not among them.
        at_once: Whether several execute at the same time. Otherwise a run ends when the next one begins.
    """

    def __init__(self, total: int, at_once: bool = False) -> None:
        self.total, self.begun, self.ended = total, 0, 0
        self._at_once, self._since = at_once, time.monotonic()

    def begin(self) -> None:
        """Note that a run begins."""
        self.begun += 1
        if not self._at_once:
            self.ended = self.begun - 1

    def end(self) -> None:
        """Note that a run has ended."""
        self.ended += 1

    @property
    def text(self) -> str:
        """Such as "run 23 of 61, 1:02:03 left". The time is known once a run has ended."""
        which = f"run {min(self.begun, self.total)} of {self.total}"
        if not self.ended or self.ended >= self.total:
            return which
        spent = time.monotonic() - self._since
        return f"{which}, about {duration(spent / self.ended * (self.total - self.ended))} left"


def heading(overall: Overall | None) -> str:
    """Return what a line about a run that begins starts with, if there are several; "" otherwise."""
    if overall is None or overall.total < 2:
        return ""
    overall.begin()
    return f"{overall.text}: "


class Pace:
    """Speed and time left, computed from the last rounds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    def add(self, event: RoundEvent) -> None:
        self._recent.append((event.participants, event.seconds))

    def text(self, event: RoundEvent) -> str:
        """Return how many clients are trained per second, and the time left."""
        spent = max(sum(seconds for _, seconds in self._recent), 1e-9)
        speed = sum(clients for clients, _ in self._recent) / spent
        left = (event.rounds - event.round) * spent / len(self._recent)
        return f"{speed:.3g} clients/s" + (f"  {duration(left)} left" if left else "")

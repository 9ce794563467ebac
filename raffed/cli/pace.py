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

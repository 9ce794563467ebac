"""A limit of time for whatever a stranger hands over."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SECONDS = 60.0  # no input may keep raffed busy for longer; the machine may be slow


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

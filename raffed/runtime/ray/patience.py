"""Waiting with messages: a line says what is waited for, after 20 seconds and then every minute."""

from __future__ import annotations

import time

FIRST_SECONDS, LATER_SECONDS = 20.0, 60.0


class Patience:
    """Says when a message is due. It is asked repeatedly while something is waited for."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = FIRST_SECONDS

    def due(self) -> str | None:
        """Return how long the wait has been, in words, if a message is due, and otherwise None."""
        waited = time.monotonic() - self._began
        if waited < self._next:
            return None
        self._next = waited + LATER_SECONDS
        return f"{waited:.0f} s so far"

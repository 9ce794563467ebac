"""Terms of a user's own method that change nothing, because their value never has a gradient."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from raffed.core.method import Method
from raffed.own.user_code import place_of
from raffed.runtime.reports import Report

log = logging.getLogger(__name__)
ROUNDS: Final = 2  # a term may have nothing to do in the first round, before there is anything to remember


class IdleTerms:
    """Warns once of the terms that had no gradient at any client in the first rounds of this process.

    Args:
        method: The run's method.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._idle: set[str] | None = None  # without gradient in every round so far
        self._rounds = 0

    def note(self, reports: Sequence[Report], last: bool) -> None:
        """Note a round, and warn if it is time.

        Args:
            reports: What its clients report.
            last: Whether it is the run's last round.
        """
        if self._rounds >= ROUNDS or not reports:
            return
        here = set.intersection(*(set(one.idle) for one in reports))
        self._idle = here if self._idle is None else self._idle & here
        self._rounds = ROUNDS if last else self._rounds + 1
        if self._rounds < ROUNDS or not self._idle:
            return
        kinds = [type(one) for _, one in self._method.ingredients() if type(one).__name__ in self._idle]
        for kind in kinds:
            log.warning(
                "%s: %s has had no gradient at any client so far, so it has changed nothing: compute its "
                "value from f with torch and do not detach it, or return 0 where it adds nothing",
                place_of(getattr(kind, "loss", kind)),
                kind.__name__,
            )


__all__ = ["IdleTerms"]

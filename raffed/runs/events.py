"""The report after every round for the watchers of a run, and what a process hands on to its caller."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raffed.results.metric import Row
    from raffed.runtime.api import Report, RoundProfile


@dataclass(frozen=True)
class RoundEvent:
    """What a watcher receives after a round.

    `accuracy` is that of the global model on the global test set. `personal` is the mean over the
    participants of the accuracy of their personalised models on their local test parts. `val` and
    `val_personal` are the same two on the clients' validation parts. All are fractions, and None if they were
    not measured. Bytes are those of all participants together. `straggling` counts the participants that made
    fewer steps because of the plan of faults.
    `metrics` holds the user's own metrics, "MODEL SPLIT METRIC" → value, such as "global test top2".
    `profile` says where the time of the round went. It also counts the writing of files, which `seconds` does
    not.
    """

    round: int  # number of rounds done
    rounds: int
    loss: float
    accuracy: float | None
    personal: float | None
    participants: int
    bytes_up: int
    bytes_down: int
    seconds: float
    val: float | None = None
    val_personal: float | None = None
    straggling: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    profile: RoundProfile | None = field(default=None, compare=False)  # no two rounds take as long

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the fields by name. The user's own metrics stand beside them under their own names."""
        apart = ("metrics", "profile")
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        return {**named, **self.metrics}


def round_event(
    round: int, rounds: int, reports: list[Report], rows: list[Row], seconds: float
) -> RoundEvent:
    """Return the event of a round, from the rows that were recorded of it.

    Args:
        round: Number of rounds done.
        rounds: Number of rounds of the run.
        reports: What the participants reported.
        rows: The metric rows of the round; the first one holds the loss and the bytes.
        seconds: Duration of the round.
    """
    means = {
        (r.model, r.split): r.value
        for r in rows
        if r.client is None and r.class_ is None and r.metric == "accuracy"
    }
    return RoundEvent(
        round,
        rounds,
        rows[0].value,
        means.get(("global", "test")),
        means.get(("personal", "local_test")),
        len(reports),
        rows[0].bytes_up or 0,
        rows[0].bytes_down or 0,
        seconds,
        means.get(("global", "val")),
        means.get(("personal", "val")),
    )


# Warnings of a process whose standard error nobody sees are handed on to the command that started it.


LOGGER = "raffed"


@contextlib.contextmanager
def handed_on(take: Callable[[str], None]) -> Iterator[None]:
    """Hand the text of each warning on instead of showing it, unless logs are for programs."""

    class Handing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            take(record.getMessage())

    logger, handler = logging.getLogger(LOGGER), Handing(logging.WARNING)
    if logger.propagate:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)

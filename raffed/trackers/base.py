"""Sinks: watchers (`raffed.run(..., watch=)`) that show a run's rounds elsewhere and are closed at the end.

A run does not depend on them (`Guarded`). A sink that cannot be opened is an error before work starts. A sink
that fails later is dropped with a warning.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from raffed.errors import RaffedError, UsageError
from raffed.results.redact import without_secrets
from raffed.results.storage import named

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent

PATIENCE = 60.0  # seconds that a sink may take to open, for a round, and to close
# Characters shown of both ends of a library's message. A message can have pages, with the reason at its end.
TEXT = 160
log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes a run's rounds, in order. A resumed run brings only the rest of them.

    Opening a sink contacts whatever it shows the rounds to. Any of its calls may raise or hang; see
    `Guarded`.
    """

    def __call__(self, event: RoundEvent) -> None: ...

    def close(self) -> None:
        """Send everything that is still to be shown."""
        ...


class Guarded:
    """A sink that a run does not depend on.

    `make` opens it before work starts. The first failure after that drops it: one warning says what will be
    missing, nothing more is shown or closed, and the run goes on. Every call runs in a thread of its own, for
    which the run waits `patience` seconds. Libraries of trackers retry for minutes, and a round must not take
    that long.

    Raises:
        UsageError: `make` raises an error or does not return in time.
    """

    def __init__(self, title: str, make: Callable[[], Sink], patience: float = PATIENCE) -> None:
        self._title, self._patience = without_secrets(title), patience
        opened: list[Sink] = []
        error = _failure(lambda: opened.append(make()), patience)
        if isinstance(error, RaffedError):
            raise error
        if error is not None:
            raise UsageError(
                f"{self._title} cannot be opened ({_told(error)}); correct it or leave it out"
            ) from error
        self._sink: Sink | None = opened[0]

    def __call__(self, event: RoundEvent) -> None:
        if self._sink is not None:
            lost = f"the rounds from {event.round} on are missing there"
            self._kept(_failure(partial(self._sink, event), self._patience), lost)

    def close(self) -> None:
        if self._sink is not None:
            self._kept(_failure(self._sink.close, self._patience), "what was shown last may be missing there")
            self._sink = None

    def _kept(self, error: BaseException | None, lost: str) -> None:
        if error is not None:
            self._sink = None
            text = (
                "%s failed (%s) and is left out from here on: %s. The run goes on, its own files have every "
                "round"
            )
            log.warning(text, self._title, _told(error), lost)


def numbers(event: RoundEvent) -> dict[str, float]:
    """Return what a sink shows of a round: all its numbers except that of the round itself."""
    found = event.as_dict().items()
    return {
        name: float(value) for name, value in found if name not in ("round", "rounds") and value is not None
    }


def _failure(work: Callable[[], object], patience: float) -> BaseException | None:
    """Execute `work` in a thread of its own and return what it raises; None if it succeeds.

    The thread is left behind after `patience` seconds.
    """
    done: Future[None] = Future()
    Thread(target=_settle, args=(work, done), name="raffed-sink", daemon=True).start()
    try:
        return done.exception(patience)
    except TooLate:
        return TimeoutError(f"no answer within {patience:g} s")


def _settle(work: Callable[[], object], done: Future[None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (reported by the waiting thread; libraries raise any error)
        done.set_exception(error)
    else:
        done.set_result(None)


def _told(error: BaseException) -> str:
    """Return an error as one line of bounded length, without secrets."""
    text = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    return text if len(text) <= 2 * TEXT else f"{text[:TEXT]} … {text[-TEXT:]}"


def tracked_id(run_id: str, folder: Path) -> str:
    """Return the name of a run in a tracker, by its id and its place.

    A stranger's folder may have the id of a run of the user's. It lies elsewhere, so it does not continue
    that run in the tracker.
    """
    return hashlib.sha256(f"{named(folder.absolute())}\n{run_id}".encode()).hexdigest()[:16]


def needs(package: str, title: str) -> None:
    """Raise UsageError if the package of an extra is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"the {title} sink needs {package}: pip install 'raffed[{package}]'")


def together(watchers: Sequence[Callable[[RoundEvent], None]]) -> Callable[[RoundEvent], None]:
    """Return one watcher that calls these in order."""

    def watch(event: RoundEvent) -> None:
        for one in watchers:
            one(event)

    return watch

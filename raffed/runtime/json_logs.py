"""Log records as JSON lines with the run's id, for systems that collect logs: RAFFED_LOG=json."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import threading
from typing import TypeVar

from raffed.errors import UsageError

T = TypeVar("T")
VARIABLE = "RAFFED_LOG"
_mine = threading.local()  # per thread, because a process may execute several runs at once, each in a thread
_all: set[str] = set()  # ids of all runs of this process


def of_run(run_id: str) -> None:
    """Mark this thread's log records as records of this run, before its first round."""
    _mine.run_id = run_id
    _all.add(run_id)


def run_id() -> str:
    """Return the id of the run that this thread serves.

    If the thread has none, it is the id of the only run that this process has served. Otherwise it is empty.
    """
    return getattr(_mine, "run_id", next(iter(_all)) if len(_all) == 1 else "")


class JsonFormatter(logging.Formatter):
    """Format records with these keys: time (UTC, ISO 8601), level, logger, message and pid.

    If there are any, run_id, the fields of `extra={"fields": …}` and error are added.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
            timespec="milliseconds"
        )
        told = {
            "time": when,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        if run_id():
            told["run_id"] = run_id()
        told.update(getattr(record, "fields", {}))
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps({key: _plain(value) for key, value in told.items()}, default=str, allow_nan=False)


def configure() -> None:
    """Send raffed's records to stderr as JSON if RAFFED_LOG=json.

    Every process calls it, and only the first call has an effect.

    Raises:
        UsageError: RAFFED_LOG has any other value.
    """
    logger, wanted = logging.getLogger("raffed"), os.environ.get(VARIABLE, "")
    if wanted not in ("", "json"):
        raise UsageError(
            f"{VARIABLE} = {wanted!r} is not a log format; set it to json, or leave it empty for plain lines"
        )
    if not wanted or any(isinstance(one.formatter, JsonFormatter) for one in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _plain(value: T) -> T | None:
    """Return a value that JSON can hold, since JSON has neither NaN nor infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

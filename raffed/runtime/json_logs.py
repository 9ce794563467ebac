"""Log records as JSON lines with the run's id, for whatever collects the logs of a cluster:
RAFFED_LOG=json.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import threading
from typing import Any

from raffed.errors import UsageError

VARIABLE = "RAFFED_LOG"
_mine = threading.local()  # of a thread: a process may have several runs at once, one a thread
_all: set[str] = set()  # of this process


def of_run(run_id: str) -> None:
    """From now on this thread's records are about this run. The conductor of a run says so before its
    first round.
    """
    _mine.run_id = run_id
    _all.add(run_id)


def run_id() -> str:
    """Of the run that this thread serves, or this process if it has served one run only; empty before it
    is known.
    """
    return getattr(_mine, "run_id", next(iter(_all)) if len(_all) == 1 else "")


class JsonFormatter(logging.Formatter):
    """time (UTC, ISO 8601), level, logger, message, run_id where there is one, pid, what
    `extra={"fields": …}` brought, error.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc).isoformat(
            timespec="milliseconds"
        )
        told: dict[str, Any] = {
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
    """Send raffed's records to stderr as JSON if RAFFED_LOG says json; called in every process, does it once.

    Raises UsageError if it says anything else."""
    logger, wanted = logging.getLogger("raffed"), os.environ.get(VARIABLE, "")
    if wanted not in ("", "json"):
        raise UsageError(
            f"{VARIABLE} = {wanted!r} is no format of logs; set it to json, or to nothing for plain lines"
        )
    if not wanted or any(isinstance(one.formatter, JsonFormatter) for one in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

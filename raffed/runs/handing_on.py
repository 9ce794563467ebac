"""Warnings of a process whose standard error nobody sees are handed on to the command that started it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

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


__all__ = ["LOGGER", "handed_on"]

"""Warnings of a command: counted while it works, and repeated at its end, where they are seen."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Iterator

from raffed.cli.numbers import counted
from raffed.results.text import visible
from raffed.runs.handing_on import LOGGER

REPEATED = ("run", "resume", "compare", "tune", "reproduce", "extend", "fork")  # commands that end with them


class WarningCount(logging.Handler):
    """Counts raffed's warnings by their texts. They are also shown at once, as without this handler."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.count(record.getMessage())
        if _nobody_else_shows(self) and logging.lastResort is not None:
            logging.lastResort.handle(record)

    def count(self, text: str) -> None:
        """Count a warning that was shown in another way, such as that of another process."""
        self.texts[" ".join(text.split())] += 1


def _nobody_else_shows(mine: logging.Handler) -> bool:
    """Return whether Python itself would show a record, because there is no other handler."""
    handlers = (*logging.getLogger(LOGGER).handlers, *logging.getLogger().handlers)
    return all(one is mine for one in handlers)


@contextlib.contextmanager
def repeated_warnings(words: list[str]) -> Iterator[None]:
    """Repeat the warnings of a command on stderr at its end, each once and with how often it came.

    Args:
        words: The command line, without the name of the program.
    """
    if not any(word in REPEATED for word in words[:2]):
        yield
        return
    count, logger = WarningCount(), logging.getLogger(LOGGER)
    logger.addHandler(count)
    try:
        yield
    finally:
        logger.removeHandler(count)
        for line in summary(count.texts):
            print(line, file=sys.stderr)


def count_warning(text: str) -> None:
    """Count a warning for the command of this process, if there is one that repeats its warnings."""
    for one in logging.getLogger(LOGGER).handlers:
        if isinstance(one, WarningCount):
            one.count(text)


def summary(texts: Counter[str]) -> list[str]:
    """Return the lines that repeat warnings, in the order in which they came; none without warnings.

    Args:
        texts: Text of a warning → how often it came.
    """
    if not texts:
        return []
    lines = [f"  {visible(text)}{f' ({often} times)' if often > 1 else ''}" for text, often in texts.items()]
    return [f"raffed: {counted(sum(texts.values()), 'warning')}:", *lines]


__all__ = ["count_warning", "repeated_warnings", "summary"]

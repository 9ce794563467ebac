"""Sentences and numbers that several commands print: warnings, endings, replaced options, numbers."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from raffed.config.portable import MARK, set_where_possible, variables
from raffed.errors import UsageError
from raffed.results.files import JsonFileError, read_json
from raffed.results.runfile import RUN_FILE
from raffed.results.text import tell, visible, visible_lines
from raffed.runs.events import LOGGER

# Commands of runs with portable bits, which need their environment before NumPy and torch are loaded.


def set_as_recorded(run_folder: Path) -> None:
    """Set this process up for the bits of a recorded run. What is wrong with its run.json is said later."""
    with contextlib.suppress(JsonFileError, OSError, ValueError, TypeError, LookupError):
        config = read_json(run_folder / RUN_FILE)["config"]
        set_where_possible(config.get("numerics") if isinstance(config, dict) else None)


def may_begin_again() -> bool:
    """Return whether this process is a command not set up for portable bits that can be begun again."""
    words = sys.argv[1:]
    return MARK not in os.environ and bool(words) and sys.orig_argv[-len(words) :] == words


def begin_again() -> NoReturn:
    """Begin this command again, with the environment of portable bits. The process keeps its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **variables()})


# Commands and options that earlier versions had: what to do instead.


STANDING = "start one with `ray start --head`, join it with --address auto, and end it with `ray stop`"
GONE = {
    "up": f"raffed does not hold a Ray any more; {STANDING}",
    "down": "raffed does not hold a Ray any more; `ray stop` ends one that `ray start --head` has started",
    "--allow": "leave it out: a bundle is not searched any more, so read it before you publish it",
    "--address warm": f"raffed does not hold a Ray any more; {STANDING}",
    "cache": "raffed removes no arrays of own data by itself; delete files of ~/.cache/raffed/arrays",
    "--transport": "leave it out: actors of this machine are called by socket, and others through Ray",
    "--execution auto": "`raffed doctor` with the options of the run says what is fastest here",
    "--log-json": "`--json` after the command writes one JSON object a line to stdout (docs/programs.md)",
}
"""A command, or an option with its value → what to do instead."""


def refuse_gone(words: Sequence[str]) -> None:
    """Refuse a command or an option that this version does not have any more.

    Args:
        words: The words of the command line, without the program.

    Raises:
        UsageError: There is one. The message says what to do instead.
    """
    line = f" {' '.join(words)} ".replace("=", " ")
    command = next((word for word in words if not word.startswith("-")), "")
    for typed, instead in GONE.items():
        if f" {typed} " in line if typed.startswith("--") else typed == command:
            raise UsageError(f"{typed}: {instead}")


# Write numbers and names for people, and events for programs.


LISTED = 4  # names of many that a line lists


def percent(share: float | None) -> str:
    """Write 0.9123 as "91.2 %", and what is not known as a dash."""
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def counted(number: int, what: str) -> str:
    """Write "1 round" or "2 rounds"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def few(names: Sequence[str]) -> str:
    """Write names one after the other. Of many only the first are listed, and how many more there are."""
    more = len(names) - LISTED
    return ", ".join(names) if more < 2 else f"{', '.join(names[:LISTED])} and {more} more"


def duration(seconds: float) -> str:
    """Write 3725 seconds as "1:02:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


LOST: list[OSError] = []  # why standard output cannot be written any more


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Let the work go on though nobody sees it any more: a reader that is gone, a full disk below a log."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        LOST.append(error)


def flushed(code: int) -> int:
    """Return the exit code, after the last output. It is a failure if some of that is lost."""
    with going_on():
        sys.stdout.flush()
    if LOST:
        tell(f"raffed: some of the output is lost: {LOST[0].strerror}", error=True)
    return code or int(bool(LOST))


def tell_event(event: Mapping[str, Any]) -> None:
    """Print an event for programs: one JSON object on a line."""
    tell(json.dumps(plain(dict(event)), allow_nan=False))


def plain(value: Any) -> Any:
    """Return a value for JSON, with null in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Warnings of a command: counted while it works, and repeated at its end, where they are seen.


REPEATED = ("run", "resume", "compare", "tune", "reproduce", "extend", "fork")  # commands that end with them


class Visible(logging.Formatter):
    """Shows names that were read as text, and never obeys them."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


class WarningCount(logging.Handler):
    """Counts raffed's warnings by their texts. They are also shown at once, as without this handler."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.count(record.getMessage())
        handlers = (*logging.getLogger(LOGGER).handlers, *logging.getLogger().handlers)
        if logging.lastResort is not None and all(handler is self for handler in handlers):
            logging.lastResort.handle(record)

    def count(self, text: str) -> None:
        """Count a warning that was shown in another way, such as that of another process."""
        self.texts[" ".join(text.split())] += 1


@contextlib.contextmanager
def repeated_warnings(words: list[str]) -> Iterator[None]:
    """Repeat the warnings of a command on stderr at its end, each once and with how often it came.

    Args:
        words: The first two words of the command line, without the name of the program.
    """
    if not any(word in REPEATED for word in words):
        yield
        return
    count, logger = WarningCount(), logging.getLogger(LOGGER)
    logger.addHandler(count)
    try:
        yield
    finally:
        logger.removeHandler(count)
        if count.texts:
            tell(f"raffed: {counted(sum(count.texts.values()), 'warning')}:", error=True)
        for text, often in count.texts.items():
            tell(f"  {visible(text)}{f' ({often} times)' if often > 1 else ''}", error=True)


def count_warning(text: str) -> None:
    """Count a warning for the command of this process, if there is one that repeats its warnings."""
    for handler in logging.getLogger(LOGGER).handlers:
        if isinstance(handler, WarningCount):
            handler.count(text)

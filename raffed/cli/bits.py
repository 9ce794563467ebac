"""Commands of runs with portable bits, which need their environment before NumPy and torch are loaded."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from raffed.config.portable import MARK, set_where_possible, variables
from raffed.results.json_files import JsonFileError, read_json
from raffed.results.runfile import RUN_FILE


def set_as_recorded(run_folder: Path) -> None:
    """Set this process up for the bits of a recorded run. What is wrong with its run.json is said later."""
    with contextlib.suppress(JsonFileError, OSError, ValueError, TypeError, LookupError):
        config = read_json(run_folder / RUN_FILE)["config"]
        set_where_possible(config if isinstance(config, dict) else {})


def may_begin_again() -> bool:
    """Return whether this process is a command not set up for portable bits that can be begun again."""
    words = sys.argv[1:]
    return MARK not in os.environ and bool(words) and sys.orig_argv[-len(words) :] == words


def begin_again() -> NoReturn:
    """Begin this command again, with the environment of portable bits. The process keeps its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **variables()})

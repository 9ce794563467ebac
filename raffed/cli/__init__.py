"""The command line: parse, build a RunConfig, call raffed, and show the result.

Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Sequence

from raffed.budget import no_memory
from raffed.cli.messages import Visible, begin_again, flushed, may_begin_again, refuse_gone, repeated_warnings
from raffed.cli.signals import NOTHING, StopSignals
from raffed.config.portable import BitsTooLateError
from raffed.errors import RaffedError, UsageError
from raffed.own.gate import note_typed
from raffed.results.files import is_full
from raffed.results.origin import commanded
from raffed.results.text import tell


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit.

    Exit codes: 0 done, 1 the run failed, 2 the request is refused, 129, 130 and 143 stopped by a signal.
    Errors that raffed raises on purpose become one line on stderr. Every other error keeps its traceback.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    _open_streams()
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Visible())
    note_typed(words)
    try:
        with commanded(words), StopSignals(lambda: None) as signals:
            _carried_out(words, signals, again=argv is None and may_begin_again())
    except BitsTooLateError:
        begin_again()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise SystemExit(flushed(code)) from None


def _carried_out(words: list[str], signals: StopSignals, again: bool) -> None:
    """Run one command.

    Always raises SystemExit, or an error that is a mistake in raffed, or a BitsTooLateError if `again`.
    """
    try:
        refuse_gone(words)
        from raffed.cli.app import app

        with repeated_warnings(words[:2]):
            app(args=words, prog_name="raffed")
    except KeyboardInterrupt:  # pressed while the command line itself is loading
        tell(NOTHING, error=True)
        sys.exit(signals.code or 130)
    except SystemExit as ended:
        # Typer raises this for Ctrl-C, also for one that comes while Ray ends after a run was stopped
        if not signals.told and isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            tell("raffed: stopped; the same command begins anew", error=True)
        if ended.code and signals.cut:
            sys.exit(signals.code)
        raise
    except RaffedError as error:
        if again and isinstance(error, BitsTooLateError):
            raise
        tell(f"raffed: {' '.join(str(error).split())}", error=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except (MemoryError, ImportError, OSError, RuntimeError) as error:
        name = str(getattr(error, "filename", None) or "the last file or output")
        too_long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        why = f"{name}: this name is too long; choose a shorter one" if too_long else no_memory(error)
        if is_full(error):
            why = f"there is no space left at {name}; free some space, then repeat the command"
        if why is None:
            raise
        tell(f"raffed: {why}", error=True)
        refused = too_long or isinstance(error, ImportError)  # no work begins before everything is loaded
        sys.exit(2 if refused else 1)


def _open_streams() -> None:
    """Let standard streams take every character, and the null device stand for those that are closed.

    Otherwise the next file to be opened would get the number of a closed stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

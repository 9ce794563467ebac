"""The command line: parse, build a RunConfig, call, show. Nothing heavy is imported before a command
needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from raffed.cli.characters import print_everywhere
from raffed.cli.deadlines import Deadlines, leave
from raffed.cli.lost_streams import Streams
from raffed.cli.signals import NOTHING, StopSignals
from raffed.errors import RaffedError, UsageError
from raffed.results.visible import visible
from raffed.runtime.memory_limit import no_memory
from raffed.runtime.ray_backend.endings import unfinished

WORK = ("run", "resume", "compare", "tune", "reproduce", "verify")  # what is shown is not all that they do


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the run failed, 2 the request cannot be carried out, 129, 130 and
    143 stopped.

    What raffed raises on purpose becomes one line on stderr; anything else keeps its traceback.
    """
    print_everywhere()
    streams = Streams()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        with Deadlines(), StopSignals(lambda: None) as signals:
            _carried_out(words, signals)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        code = _seen(streams, words, code)
        if unfinished():  # a thread waits for a Ray that does not answer, and would keep the process
            leave(code)
        if code != ended.code:
            raise SystemExit(code) from None
        raise


def _carried_out(words: list[str], signals: StopSignals) -> None:
    """Always raises SystemExit, or an error that is a mistake in raffed."""
    try:
        from raffed.cli.app import app

        app(args=words, prog_name="raffed")
    except KeyboardInterrupt:  # while the command line itself is loaded
        print(NOTHING, file=sys.stderr)
        sys.exit(signals.code or 130)
    except SystemExit as ended:
        if isinstance(
            getattr(ended.__context__, "__cause__", None), KeyboardInterrupt
        ):  # typer's, in the place of Ctrl-C
            print("raffed: stopped", file=sys.stderr)
        if ended.code and signals.cut:
            sys.exit(signals.code)
        raise
    except RaffedError as error:
        print(f"raffed: {visible(' '.join(str(error).split()))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except (MemoryError, ImportError, OSError, RuntimeError) as error:
        if (why := no_memory(error)) is None:
            raise
        print(f"raffed: {why}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ImportError) else 1)  # nothing begins before all is loaded


def _seen(streams: Streams, words: list[str], code: int) -> int:
    """The exit code, where what was to be shown could not be: for a command that only shows something,
    that is a failure.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return code
    wrong = streams.wrong()
    if wrong is None:
        return code
    print(f"raffed: {wrong}", file=sys.stderr)
    return code if any(word in WORK for word in words[:2]) else code or 1

"""The command line: parse, build a RunConfig, call, show. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from raffed.cli.signals import NOTHING
from raffed.core.errors import RaffedError, UsageError
from raffed.core.visible import visible


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the run failed, 2 the request cannot be carried out, 130 and 143 stopped.

    What raffed raises on purpose becomes one line on stderr; anything else keeps its traceback.
    """
    try:
        from raffed.cli.app import app

        app(args=None if argv is None else list(argv), prog_name="raffed")
    except KeyboardInterrupt:  # while the command line itself is loaded
        print(NOTHING, file=sys.stderr)
        sys.exit(130)
    except SystemExit as ended:
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):  # typer's, in the place of Ctrl-C
            print("raffed: stopped", file=sys.stderr)
        raise
    except RaffedError as error:
        print(f"raffed: {visible(' '.join(str(error).split()))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)

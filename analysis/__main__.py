"""`python -m analysis RUNS... --out DIR`: print the summary, write the report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .cells import for_terminal
from .load import NoRunsError, read_runs
from .report import write_loaded
from .tables import summary, to_text


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when the report is written, 2 when there is nothing to report on."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Summarise runs into one HTML report.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders that hold some")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for report.html and its tables")
    arguments = parser.parse_args(argv)
    runs = read_runs(arguments.runs)
    for name, reason in runs.unreadable.items():
        print(for_terminal(f"left out {name}: {reason}"), file=sys.stderr)
    try:
        report = write_loaded(runs, arguments.out)
    except NoRunsError as error:
        print(for_terminal(str(error)), file=sys.stderr)
        return 2
    print(to_text(summary(runs)))
    print(for_terminal(f"report: {report}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

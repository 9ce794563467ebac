"""The command `python -m analysis RUNS... --out DIR` prints the summary and writes the report."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from raffed.results.storage import DamagedRecordsError, named, unpacked
from raffed.results.text import visible

from .metrics.summary import summary, to_text
from .report import write_loaded
from .runs.load import NoRunsError, read_runs
from .sweeps import damaged_sweeps, find_sweeps, trials_of, with_missing


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if the report is complete, 1 if a sweep in it is damaged, 2 if there is nothing to report."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis", description="Summarise runs into one HTML report."
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders that hold some"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for report.html and its tables"
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log file under Windows lacks characters of a table
            stream.reconfigure(errors="backslashreplace")
    arguments = parser.parse_args(argv)
    try:
        with unpacked(arguments.runs) as places:
            return _report(places, arguments.out)
    except DamagedRecordsError as error:
        print(visible(str(error)), file=sys.stderr)
        return 2


def _report(places: Sequence[Path], out: Path) -> int:
    sweeps = find_sweeps(places)
    runs = with_missing(read_runs(places), sweeps, places)
    lost = damaged_sweeps(sweeps)
    for name, reason in {**runs.unreadable, **lost}.items():
        print(visible(f"left out {named(name)}: {reason}"), file=sys.stderr)
    try:
        report = write_loaded(runs, out, sweeps=sweeps)
    except NoRunsError as error:
        print(visible(str(error)), file=sys.stderr)
        return 2
    print(to_text(summary(runs.without(trials_of(runs, sweeps)))))
    print(visible(f"report: {report}"))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

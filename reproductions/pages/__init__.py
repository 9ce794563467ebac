"""The commands that pack records of runs, and write pages and findings from them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from raffed.analysis.runs.files import write_text

from raffed.results.text import visible


def write_pages(
    name: str,
    written: Callable[[Sequence[Path], Path], Mapping[Path, str]],
    argv: Sequence[str] | None,
) -> int:
    """Carry out a command that writes pages on records.

    Args:
        name: The module of the command.
        written: Records, and where the page will lie → the texts of files.
        argv: The words after the command; those of this process by default.

    Returns:
        0 if the page was written, and 2 if there is nothing to write about or no place for it.
    """
    parser = argparse.ArgumentParser(prog=f"python -m reproductions.pages.{name}")
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="packed records, or runs")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE", help="the page, below docs/")
    given = parser.parse_args(argv)

    def write() -> None:
        for path, text in written(given.records, given.out).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)

    return exit_code(write)


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a command. Return 0, or 2 after one line on stderr if it cannot be done."""
    try:
        work()
    except (ValueError, OSError) as error:  # damaged records are a ValueError
        print(visible(str(error)), file=sys.stderr)
        return 2
    return 0

"""Print gains beside the strength of the terms: `python -m reproductions.pages.findings RECORDS...`.

It takes every table whose runs measured `term_strength`: what each row gains over the baseline, paired by
seed, and how strong its terms were, as Markdown. `--measure accuracy_best` reads the runs by another measure
than the table does. The findings in reproductions/records/README.md quote both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.analysis.metrics.intervals import LEAST_SEEDS
from raffed.analysis.report import find_items
from raffed.analysis.reproduction.cell_values import READERS
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.numbers import shown
from raffed.analysis.reproduction.term_strength import cell_strengths, per_cent
from raffed.analysis.reproduction.verdicts import Line, result_lines
from raffed.analysis.runs.load import Runs, read_runs
from raffed.analysis.table import TextTable, as_markdown

from raffed.results.storage import unpacked

from . import exit_code

NOTHING = "no run of it measured term_strength; give such runs"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if there was something to print, and 2 if not."""
    parser = argparse.ArgumentParser(prog="python -m reproductions.pages.findings", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="packed records, or runs")
    parser.add_argument("--measure", choices=sorted(READERS), help="instead of the measure of each table")
    given = parser.parse_args(argv)
    return exit_code(lambda: print(findings(given.records, given.measure)))


def findings(records: Sequence[Path], measure: str | None = None) -> str:
    """Return the tables of all items that measured strengths.

    Args:
        records: Packed records, or folders of runs.
        measure: Name of the measure by which runs are read; None: that of each table.

    Raises:
        ValueError: There is none.
    """
    parts = []
    with unpacked(records) as places:
        for item in find_items(places):
            read_by = item if measure is None else _read_by(item, measure)
            table = gain_table(read_by, read_runs(run_folders(item)))
            title = item.title if measure is None else f"{item.title} ({measure})"
            parts += [] if table is None else [f"{title}\n\n{as_markdown(table)}"]
    if not parts:
        raise ValueError(f"{', '.join(map(str, records))}: {NOTHING}")
    return "\n".join(parts)


def _read_by(item: Reproduction, measure: str) -> Reproduction:
    """Return the same item, all of whose runs are read by a measure."""
    cells = [{**cell, "measure": measure} for cell in item.about["cells"]]
    return item._replace(about={**item.about, "measure": measure, "cells": cells})


def gain_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return rows with their gain, their strengths and a verdict; None if no strength was measured."""
    if runs.runs.empty:
        return None
    terms = {(cell["row"], cell["column"]): cell_strengths(item, cell, runs) for cell in item.about["cells"]}
    if not any(terms.values()):
        return None
    baseline = str(item.about["baseline"])
    titles = ["Method", "Column", "Ours", "Seeds", f"Ours − {baseline}", "Terms: start, end of training"]
    lines = [
        [
            line.row,
            line.column,
            shown(line.ours, 2),
            str(len(line.ours)),
            shown(line.gains, 2, sign=True),
            _strengths(terms.get((line.row, line.column), {})),
            judged(line, baseline),
        ]
        for line in result_lines(item, runs)
        if line.ours
    ]
    words = frozenset({"Method", "Column", titles[-1], "Verdict"})
    return TextTable([*titles, "Verdict"], lines, words)


def judged(line: Line, baseline: str) -> str:
    """Return what a line says: above or below the baseline, not separated from it, or why nothing."""
    if line.row == baseline:
        return "baseline"
    excluded: str = line.unpaired or ("no test" if line.no_test else "")
    if excluded or len(line.gains) < LEAST_SEEDS:
        return excluded or "too few seeds"
    return "not separated" if not line.separated else "above" if sum(line.gains) > 0 else "below"


def _strengths(terms: Mapping[str, tuple[float, float]]) -> str:
    said = (f"{name} {per_cent(start)} %, {per_cent(end)} %" for name, (start, end) in terms.items())
    return "; ".join(said) or "–"


if __name__ == "__main__":
    sys.exit(main())

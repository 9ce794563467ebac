"""What is behind each cell of a tuned table: its seeds, its hashes, and the command that makes it again.

A table of an earlier protocol has no such command: today's would tune and run its rows in another way.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from raffed.analysis.render.cells import for_markdown
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.runs.files import JsonObject
from raffed.analysis.runs.load import Runs

from ...zoo.items import ITEMS
from .rows import Scores, run_names

DIGITS = 12  # of a SHA-256 that are shown
Records: TypeAlias = Sequence[tuple[str, str]]  # name and address of packed records


def of_today(item: Reproduction) -> bool:
    """Return whether today's `raffed reproduce` tunes and runs the rows of this table as they were."""
    return any((table.name, table.note) == (item.about["name"], item.about["note"]) for table in ITEMS)


def anchor(item: Reproduction, row: str, column: str) -> str:
    """Return the place on the page that a cell leads to."""
    when = "" if of_today(item) else "earlier "
    words = f"{when}{item.about['paper']} {item.about['name']} {column} {row}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def command(item: Reproduction, row: str, column: str) -> str:
    """Return the command that makes a cell again."""
    key = f"{item.about['paper']}/{item.about['name']}"
    only = " ".join(f"--only {shlex.quote(name.lower())}" for name in (row, column))
    return f"raffed reproduce {key} --scale {item.about['scale']} {only} --out zoo"


def linked(item: Reproduction, column: str, rows: Sequence[str], table: str) -> str:
    """Return a Markdown table whose first cells lead to what is behind them.

    Args:
        item: The table's item.
        column: Its column.
        rows: Names of the rows, in order.
        table: The table, with two lines of head.
    """
    lines = table.splitlines()
    for number, row in enumerate(rows, start=2):
        shown = for_markdown(row)
        lines[number] = lines[number].replace(
            f"| {shown} |", f"| [{shown}](#{anchor(item, row, column)}) |", 1
        )
    return "\n".join(lines)


def details(item: Reproduction, runs: Runs, column: str, by_row: Scores, records: Records = ()) -> str:
    """Return the folded table behind the cells of a column.

    Args:
        item: The table.
        runs: Its runs.
        column: One of its columns.
        by_row: Row → seed → the measure, a fraction.
        records: Name and address of the packed records that the runs come from.
    """
    titles = ["Method", "Accuracy by seed, %", "Weights by seed (SHA-256)", *["Command"] * of_today(item)]
    lines = [f"| {' | '.join(titles)} |", "| :-- " * len(titles) + "|"]
    for cell in item.about["cells"]:
        if cell["column"] == column and str(cell["row"]) in by_row:
            lines.append(_line(item, runs, cell, by_row[str(cell["row"])]))
    links = ", ".join(f"[{name}]({address})" for name, address in records)
    source = f"\nThe rows of these runs are in the record {links}.\n" if links else ""
    title = f"<summary>Seeds and hashes of {for_markdown(column)}</summary>"
    return "\n".join(['<details markdown="1">', title, "", *lines, source, "</details>"])


def _line(item: Reproduction, runs: Runs, cell: JsonObject, scores: Mapping[int, float]) -> str:
    """Return the line of one cell, with the place that the table above leads to."""
    row, column = str(cell["row"]), str(cell["column"])
    behind = runs.runs.loc[run_names(item, cell, runs)]
    hashes = behind["hashes.weights"] if "hashes.weights" in behind else behind["seed"].map(lambda _: "")
    weights = {int(seed): str(digest)[:DIGITS] for seed, digest in zip(behind["seed"], hashes, strict=True)}
    cells = (
        f'<a id="{anchor(item, row, column)}"></a>{for_markdown(row)}',
        ", ".join(f"{seed}: {100 * scores[seed]:.2f}" for seed in sorted(scores)),
        ", ".join(f"{seed}: `{weights[seed]}`" for seed in sorted(weights) if weights[seed]) or "–",
        *([f"`{command(item, row, column)}`"] if of_today(item) else []),
    )
    return f"| {' | '.join(cells)} |"

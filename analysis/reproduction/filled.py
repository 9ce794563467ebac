"""Fill a text about a table with its numbers, so that no digit of it can differ from the records.

`{{FedMR | Dir 0.05}}` is our mean ± its 95 % interval, and a third part asks for another number of the cell:
a key of `NUMBERS`, `seed 0`, or `− FedAvg`, the difference to that row, paired by seed. `{{cells}}` counts
the verdicts of the table, and `{{claims}}` those of its claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..runs.load import Runs
from .cell_values import values_of
from .claims import claim_counts
from .item_runs import Reproduction
from .matrix import matrix_of
from .numbers import shown
from .verdicts import Line, digits_of, result_lines

EXPRESSION = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)


def _order(line: Line, item: Reproduction) -> str:
    """Return whether the row is above the baseline, below it or not separated from it, in our runs.

    It is empty if runs of one of the two diverged, or if not all of its settings were run.
    """
    if line.unpaired or not line.separated:
        return "" if line.unpaired else "not separated from"
    return "above" if sum(line.gains) > 0 else "below"


NUMBERS: dict[str, Callable[[Line, Reproduction], str | tuple[Sequence[float], bool]]] = {
    "": lambda line, item: (line.ours, False),
    "mean": lambda line, item: ([line.mean], False),
    "printed": lambda line, item: ([line.printed], False),
    "off": lambda line, item: ([line.mean - line.printed], True),
    "span": lambda line, item: ([max(line.ours) - min(line.ours)], False),
    "gain": lambda line, item: (line.gains, True),
    "printed gain": lambda line, item: ([line.printed_gain], True),
    "order": _order,
    "diverged": lambda line, item: str(line.lost),
}


def verdict_counts(item: Reproduction, runs: Runs) -> str:
    """Return how many cells of a table have which verdict, and its null rate beside them."""
    matrix = matrix_of(item, runs)
    words = ", ".join(f"{word} {count}" for word, count in matrix.counts.items())
    return ". ".join(filter(None, (words, matrix.agreement)))


def filled(text: str, item: Reproduction, runs: Runs) -> str:
    """Return a text with every `{{expression}}` in it replaced by what the runs of a table say.

    Raises:
        ValueError: An expression names a cell, a seed or a number that the table does not have.
    """
    lines = {(line.row, line.column): line for line in result_lines(item, runs)}

    def number(match: re.Match[str]) -> str:
        parts = [" ".join(part.split()) for part in match[1].split("|")]
        if parts == ["cells"]:
            return verdict_counts(item, runs)
        if parts == ["claims"]:
            return claim_counts(item, runs).partition(": ")[2].rstrip(".")
        row, column, what = [*parts, "", ""][:3]
        line = lines.get((row, column))
        if line is None or len(parts) not in (2, 3):
            raise ValueError(
                f"{item.title}: there is no cell {match[0]}; write {{{{ROW | COLUMN | NUMBER}}}}"
            )
        value = NUMBERS[what](line, item) if what in NUMBERS else _by_seed(item, runs, line, what)
        text = value if isinstance(value, str) else shown(value[0], digits_of(item, line), value[1])
        if text in ("–", ""):
            raise ValueError(f"{item.title}: there is no number {match[0]}")
        return text

    return EXPRESSION.sub(number, text)


def _by_seed(item: Reproduction, runs: Runs, line: Line, what: str) -> tuple[Sequence[float], bool]:
    """Return the value of `seed N`, or the differences to another row of the column as `− ROW`."""
    word, _, name = what.partition(" ")
    values = values_of(item, (line.row, line.column), runs)
    if word == "seed":
        return [values[seed] for seed in values if str(seed) == name], False
    if word != "−":
        known = ", ".join(filter(None, NUMBERS))
        raise ValueError(f"{item.title}: {what!r} is none of {known}, seed N, − ROW")
    other = values_of(item, (name, line.column), runs)
    return [values[seed] - other[seed] for seed in values if seed in other], True

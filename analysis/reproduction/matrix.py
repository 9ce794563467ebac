"""The table of an item in the shape of the paper: method × column, ours over the printed number.

At full scale a cell has our number over the printed one. At proxy scale, where levels mean nothing, it has
our difference to the baseline over the printed difference. At smoke scale it says that the cell runs, and
nothing about the paper.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..runs.load import Runs
from .absent import NOT_RUN, absence, remark
from .item_runs import Reproduction
from .null_rate import agreement_of
from .numbers import shown
from .table_order import table_order
from .verdict_marks import MARKS
from .verdicts import Line, column_name, digits_of, result_lines, verdict

UNCOUNTED = ("–", "baseline")


class MatrixCell(NamedTuple):
    """A cell of the matrix.

    Attributes:
        ours: our number, or what is said in its place; empty without a run.
        printed: what the paper prints; empty if it prints nothing, or if ours is not compared with it.
        word: the verdict, one of MARKS.
        hint: everything that is known of the cell, in words.
        note: the letter of the reason why there is no number, or why runs are left out of it; else empty.
        value: our number, by which a page may sort; NaN without one.
    """

    ours: str = ""
    printed: str = ""
    word: str = "–"
    hint: str = ""
    note: str = ""
    value: float = math.nan


class Matrix(NamedTuple):
    """A table method × column.

    Attributes:
        meaning: what a cell shows, in a sentence.
        rows: the methods.
        columns: the columns.
        cells: one list for each row, with one cell for each column.
        counts: verdict → number of cells, in the order of MARKS.
        agreement: how many cells agree, and how many with the baseline in their place; empty if no cell is
            judged.
        notes: letter → why cells have no number, or runs are left out of it, and how many cells.
    """

    meaning: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[MatrixCell]]
    counts: Mapping[str, int]
    agreement: str
    notes: Mapping[str, str]

    @property
    def compared(self) -> bool:
        """Whether any cell has a printed number."""
        return any(cell.printed for line in self.cells for cell in line)


def matrix_of(item: Reproduction, runs: Runs) -> Matrix:
    """Return the matrix of an item."""
    lines = {(line.row, line.column): line for line in result_lines(item, runs)}
    rows, columns = table_order(item)
    why = {
        key: remark(item, key, runs) if line.ours else absence(item, key, runs).why
        for key, line in lines.items()
    }
    notes = {reason: _letter(at) for at, reason in enumerate(dict.fromkeys(filter(None, why.values())))}
    gains = item.about["scale"] == "proxy" and any(
        not math.isnan(line.printed_gain) for line in lines.values()
    )
    cells = [
        [
            _cell(item, lines[row, column], gains, why.get((row, column), ""), notes)
            if (row, column) in lines
            else MatrixCell()
            for column in columns
        ]
        for row in rows
    ]
    counted = Counter(cell.word for line in cells for cell in line if cell.word not in UNCOUNTED)
    counts = {word: counted[word] for word in MARKS if word in counted}
    many = Counter(why.values())
    return Matrix(
        _meaning(item, gains),
        rows,
        [column_name(item, column) for column in columns],
        cells,
        counts,
        agreement_of(item, runs).sentence(),
        {letter: f"{reason} ({_cells(many[reason])})" for reason, letter in notes.items()},
    )


def _meaning(item: Reproduction, gains: bool) -> str:
    baseline = item.about["baseline"]
    if item.about["scale"] == "smoke":
        return "Whether each cell runs. Seconds of training on digits say nothing else."
    if gains:
        return f"First our difference to {baseline}; then the printed one. The row {baseline} has our level."
    if any(cell["printed"] for cell in item.about["cells"]):
        return "First ours, the mean over seeds; then the printed number."
    return "Ours, the mean over seeds. No number is printed here."


def _cell(item: Reproduction, line: Line, gains: bool, why: str, notes: Mapping[str, str]) -> MatrixCell:
    scale, digits = item.about["scale"], digits_of(item, line)
    word = verdict(line, scale, item.about["margin"])
    compared = scale == "full" or gains
    printed, signed = (line.printed_gain, True) if gains else (line.printed, False)
    below = "" if math.isnan(printed) or not compared else shown([printed], digits, sign=signed)
    note = notes.get(why, "")
    if not line.ours:
        said = "" if word == NOT_RUN else word
        return MatrixCell(said, below, word, _stated(word, why), note)
    level = shown(line.ours, digits)
    if scale == "smoke":
        return MatrixCell("runs", "", word, _hint(line, word, digits, "", why), note)
    if gains and line.row != item.about["baseline"]:
        above = shown(line.gains, digits, sign=True)
        mean = sum(line.gains) / len(line.gains) if line.gains else math.nan
        hint = _hint(line, word, digits, f"level {level}", why)
        return MatrixCell(above, below, word, hint, note, mean)
    word = "baseline" if gains else word
    hint = _hint(line, word, digits, below and f"printed {below}", why)
    return MatrixCell(level, below, word, hint, note, line.mean)


def _hint(line: Line, word: str, digits: int, more: str, why: str) -> str:
    """Return the verdict, the number beside ours, our number of each seed, and what is left out."""
    seeds = ", ".join(shown([value], digits) for value in line.ours)
    said = [f"{line.row}, {line.column}", "" if word == "–" else word, more, f"seeds: {seeds}", why]
    return "; ".join(filter(None, said))


def _stated(word: str, why: str) -> str:
    """Return a verdict with its reason, which may begin with the verdict."""
    return why if why.startswith(word) else ": ".join(filter(None, (word, why)))


def unplaced(item: Reproduction) -> list[str]:
    """Return what was left out and is no cell of the table without a run, such as a study."""
    absent = {", ".join((cell["row"], cell["column"])) for cell in item.about["cells"] if not cell["runs"]}
    return [text for text in item.about["left_out"] if not any(text.startswith(place) for place in absent)]


def _letter(number: int) -> str:
    """Return a, b, …, z, aa, ab, …"""
    before = _letter(number // 26 - 1) if number >= 26 else ""
    return before + chr(ord("a") + number % 26)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


class HeadGroup(NamedTuple):
    """Columns beside one another whose names begin with the same word, which stands once above them."""

    title: str
    labels: Sequence[str]


def heads(columns: Sequence[str]) -> list[HeadGroup]:
    """Return the heads of the columns. Neighbours that share their first word have one head."""
    groups: list[HeadGroup] = []
    for column in columns:
        first, _, rest = column.partition(" ")
        if rest and groups and groups[-1].title == first:
            groups[-1] = HeadGroup(first, [*groups[-1].labels, rest])
        else:
            groups.append(HeadGroup(first if rest else "", [rest or column]))
    return [
        head if len(head.labels) > 1 or not head.title else HeadGroup("", [f"{head.title} {head.labels[0]}"])
        for head in groups
    ]

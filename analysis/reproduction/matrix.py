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
from .item_runs import Reproduction, stray_of
from .numbers import shown
from .table_order import table_order
from .verdicts import Line, column_name, digits_of, result_lines, verdict

ABSENT = "not run"
UNCOUNTED = ("–", "baseline")


class MatrixCell(NamedTuple):
    """A cell of the matrix.

    Attributes:
        ours: our number, or what is said in its place; empty without a run.
        printed: what the paper prints; empty if it prints nothing, or if ours is not compared with it.
        word: the verdict, one of MARKS.
        hint: everything that is known of the cell, in words.
        note: the letter of the reason why there is no run; empty if there is one.
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
        notes: letter → why cells have no run, and how many.
    """

    meaning: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[MatrixCell]]
    counts: Mapping[str, int]
    notes: Mapping[str, str]

    @property
    def compared(self) -> bool:
        """Whether any cell has a printed number."""
        return any(cell.printed for line in self.cells for cell in line)


def matrix_of(item: Reproduction, runs: Runs) -> Matrix:
    """Return the matrix of an item."""
    lines = {(line.row, line.column): line for line in result_lines(item, runs)}
    rows, columns = table_order(item)
    why = {key: _why_absent(item, key, runs) for key, line in lines.items() if not line.ours}
    notes = {reason: _letter(at) for at, reason in enumerate(dict.fromkeys(filter(None, why.values())))}
    gains = item.about["scale"] == "proxy" and any(not math.isnan(one.printed_gain) for one in lines.values())
    cells = [
        [
            _cell(item, lines[row, column], gains, why.get((row, column), ""), notes)
            if (row, column) in lines
            else MatrixCell()
            for column in columns
        ]
        for row in rows
    ]
    found = Counter(cell.word for line in cells for cell in line if cell.word not in UNCOUNTED)
    counts = {word: found[word] for word in sorted(found, key=lambda word: (word == ABSENT, -found[word]))}
    many = Counter(why.values())
    return Matrix(
        _meaning(item, gains),
        rows,
        [column_name(item, column) for column in columns],
        cells,
        counts,
        {letter: f"{reason} ({_cells(many[reason])})" for reason, letter in notes.items()},
    )


def _meaning(item: Reproduction, gains: bool) -> str:
    baseline = item.about["baseline"]
    if item.about["scale"] == "smoke":
        return "Whether each cell runs. Seconds of training on digits say nothing else."
    if gains:
        return (
            f"Above: our difference to {baseline}. Below: the printed one. The row {baseline} has our level."
        )
    if any(cell["printed"] for cell in item.about["cells"]):
        return "Above: ours, the mean over seeds. Below: the printed number."
    return "Ours, the mean over seeds. The paper prints no number here."


def _cell(item: Reproduction, line: Line, gains: bool, why: str, notes: Mapping[str, str]) -> MatrixCell:
    scale, digits = item.about["scale"], digits_of(item, line)
    word = verdict(line, scale, item.about["tolerance"])
    compared = scale == "full" or gains
    printed, signed = (line.printed_gain, True) if gains else (line.printed, False)
    below = "" if math.isnan(printed) or not compared else shown([printed], digits, sign=signed)
    if not line.ours:
        return MatrixCell("", below, ABSENT, f"{ABSENT}: {why}" if why else ABSENT, notes.get(why, ""))
    level = shown(line.ours, digits)
    if scale == "smoke":
        return MatrixCell("runs", "", word, _hint(line, word, digits, ""))
    if gains and line.row != item.about["baseline"]:
        above = shown(line.gains, digits, sign=True)
        mean = sum(line.gains) / len(line.gains) if line.gains else math.nan
        return MatrixCell(above, below, word, _hint(line, word, digits, f"level {level}"), value=mean)
    word = "baseline" if gains else word
    return MatrixCell(
        level, below, word, _hint(line, word, digits, below and f"printed {below}"), value=line.mean
    )


def _hint(line: Line, word: str, digits: int, more: str) -> str:
    """Return the verdict, the number beside ours, and our number of each seed."""
    seeds = ", ".join(shown([value], digits) for value in line.ours)
    said = [f"{line.row}, {line.column}", "" if word == "–" else word, more, f"seeds: {seeds}"]
    return "; ".join(filter(None, said))


def _why_absent(item: Reproduction, key: tuple[str, str], runs: Runs) -> str:
    """Return why a cell has no number: the plan's reason, or why its runs are left out."""
    cell = next((one for one in item.about["cells"] if (one["row"], one["column"]) == key), None)
    if cell is None:
        return ""
    place = ", ".join(key)
    ends = (": ", ", ") if cell.get("settings") else (": ",)
    for text in item.about["left_out"]:
        if text.startswith(tuple(place + end for end in ends)):
            return str(text[len(place) :]).partition(": ")[2]
    return stray_of(item, cell, runs)


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
    found: list[HeadGroup] = []
    for column in columns:
        first, _, rest = column.partition(" ")
        if rest and found and found[-1].title == first:
            found[-1] = HeadGroup(first, [*found[-1].labels, rest])
        else:
            found.append(HeadGroup(first if rest else "", [rest or column]))
    return [
        one if len(one.labels) > 1 or not one.title else HeadGroup("", [f"{one.title} {one.labels[0]}"])
        for one in found
    ]

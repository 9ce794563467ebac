"""A table of formatted cells, written as text, Markdown or LaTeX. The page templates write it as HTML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from raffed.results.text import visible

from .render.cells import for_latex, for_markdown

T = TypeVar("T")
LONGEST_NUMBER = 8  # characters of a number that is shown with all its digits


class TextTable(NamedTuple):
    """A table of formatted cells.

    Attributes:
        titles: one title for each column.
        rows: the rows; each has one cell for each title.
        left_aligned: the titles of columns that are aligned to the left because they hold words. All other
            columns are aligned to the right.
        strong: (row, column) of the cells that are emphasised in HTML.
        hints: (row, column) → what a page shows when the pointer rests on the cell.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_aligned: frozenset[str] = frozenset()
    strong: frozenset[tuple[int, int]] = frozenset()
    hints: Mapping[tuple[int, int], str] = {}


def without_blank(table: TextTable, titles: Collection[str]) -> TextTable:
    """Return the table without those of the given columns in which every cell is a dash."""
    kept = [
        j
        for j, title in enumerate(table.titles)
        if title not in titles or any(line[j] != "–" for line in table.rows)
    ]
    rows = [[line[j] for j in kept] for line in table.rows]
    strong = frozenset((i, kept.index(j)) for i, j in table.strong if j in kept)
    hints = {(i, kept.index(j)): text for (i, j), text in table.hints.items() if j in kept}
    return TextTable([table.titles[j] for j in kept], rows, table.left_aligned, strong, hints)


def in_four_digits(value: T) -> str:
    """Write a setting for people: a number of many digits, as searches draw them, with four of them.

    sweep.json has all digits.
    """
    text = str(value)
    if not isinstance(value, float) or len(text) <= LONGEST_NUMBER:
        return text
    return f"{value:.4g}"


def as_text(table: TextTable) -> str:
    """Align the columns with spaces: words to the left, numbers to the right."""
    shown = [list(map(visible, line)) for line in [table.titles, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    sides = ["<" if title in table.left_aligned else ">" for title in table.titles]
    aligned = (
        "  ".join(f"{c:{side}{w}}" for c, side, w in zip(line, sides, widths, strict=True)) for line in shown
    )
    return "\n".join(line.rstrip() for line in aligned)


def as_markdown(table: TextTable) -> str:
    """Return a GitHub table. What could be Markdown or HTML in a cell is escaped."""
    rule = [":--" if title in table.left_aligned else "--:" for title in table.titles]
    rows = [
        list(map(for_markdown, table.titles)),
        rule,
        *(list(map(for_markdown, line)) for line in table.rows),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def as_latex(table: TextTable) -> str:
    """Return a LaTeX tabular with the rules of booktabs."""
    rows = [" & ".join(map(for_latex, row)) + r" \\" for row in [table.titles, *table.rows]]
    kinds = "".join("l" if title in table.left_aligned else "r" for title in table.titles)
    body = "\n".join([r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"])
    return f"\\begin{{tabular}}{{{kinds}}}\n{body}\n\\end{{tabular}}\n"

"""Write the matrix of an item as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from ..render.cells import for_latex, for_markdown
from ..table import TextTable, as_markdown
from .matrix import HeadGroup, Matrix, MatrixCell, heads
from .verdict_marks import mark


def matrix_table(matrix: Matrix) -> TextTable:
    """Return the matrix with `ours / printed` and the sign of the verdict in every cell."""
    rows = [[row, *map(_one_line, cells)] for row, cells in zip(matrix.rows, matrix.cells, strict=True)]
    return TextTable(["Method", *matrix.columns], rows, frozenset({"Method"}))


def _one_line(cell: MatrixCell) -> str:
    ours = cell.ours or ("" if cell.word == "–" else "–")
    numbers = " / ".join(filter(None, (ours, cell.printed)))
    note = f"({cell.note})" if cell.note else ""
    return " ".join(filter(None, (numbers, mark(cell.word).sign, note)))


def legend(matrix: Matrix) -> list[str]:
    """Return a line for every verdict that occurs, with its sign, its count and its meaning."""
    lines = []
    for word, count in matrix.counts.items():
        marked = mark(word)
        lines.append(f"{marked.sign} {word} ({count}): {marked.meaning}".strip())
    return lines


def matrix_markdown(matrix: Matrix) -> str:
    """Return the matrix as a GitHub table, with what its signs and letters mean."""
    said = [
        matrix.meaning,
        "; ".join(legend(matrix)),
        matrix.agreement,
        *(f"({key}) {why}" for key, why in matrix.notes.items()),
    ]
    lines = "\n\n".join(for_markdown(f"{text}.".replace("..", ".")) for text in said if text)
    return f"{as_markdown(matrix_table(matrix))}\n{lines}\n"


def matrix_latex(matrix: Matrix, title: str) -> str:
    """Return a tabular with the rules of booktabs: ours in one line, the printed numbers below it."""
    groups = heads(matrix.columns)
    body = [r"\toprule", *_head_lines(groups), r"\midrule"]
    for row, cells in zip(matrix.rows, matrix.cells, strict=True):
        body.append(_line([row, *map(_above, cells)]))
        if matrix.compared:
            body.append("  & " + " & ".join(map(_below, cells)) + r" \\")
    body.append(r"\bottomrule")
    notes = [f"({key}) {why}" for key, why in matrix.notes.items()]
    said = [title, matrix.meaning, *legend(matrix), matrix.agreement, *notes]
    comments = "".join(f"% {' '.join(text.split())}\n" for text in said if text)
    kinds = "l" + "r" * len(matrix.columns)
    lines = "\n".join(body)
    return f"{comments}\\begin{{tabular}}{{{kinds}}}\n{lines}\n\\end{{tabular}}\n"


def _above(cell: MatrixCell) -> str:
    dash = "" if cell.word == "–" and not cell.ours else "–"
    note = f"({cell.note})" if cell.note else ""
    return " ".join(filter(None, (cell.ours or dash, mark(cell.word).sign, note)))


def _below(cell: MatrixCell) -> str:
    return f"{{\\small {for_latex(cell.printed)}}}" if cell.printed else ""


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(for_latex, cells)) + r" \\"


def _head_lines(groups: Sequence[HeadGroup]) -> list[str]:
    """Return the line of the columns. If they are grouped, the groups and their rules come first."""
    labels = _line(["Method", *(label for group in groups for label in group.labels)])
    if not any(group.title for group in groups):
        return [labels]
    titles, rules, at = [""], [], 2
    for group in groups:
        size = len(group.labels)
        titles.append(f"\\multicolumn{{{size}}}{{c}}{{{for_latex(group.title)}}}" if group.title else "")
        rules += [f"\\cmidrule(lr){{{at}-{at + size - 1}}}"] if group.title else []
        at += size
    return [" & ".join(titles).strip() + r" \\", " ".join(rules), labels]

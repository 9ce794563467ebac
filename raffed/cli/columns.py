"""How the columns of a table fit a terminal: no word of a header is broken, nor a name or a number."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len

EDGE = 2  # columns that a table needs beside its cells
BETWEEN = 3  # columns between two cells
KEY = 30  # a longer word in the first column may be broken
WORD = 14  # a longer word in a column of text may be broken, such as an address


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Collection[str] = ()
) -> list[list[tuple[int, int]]]:
    """Return the tables into which a table is divided so that each fits a width.

    Args:
        titles: The headers.
        rows: The cells, as plain text.
        width: Columns of the terminal.
        numbers: Headers of columns that hold numbers, which are never broken.

    Returns:
        For each table its columns as (position, width of the cells). Each begins with the first column.
        A single column that does not fit stands in a table of its own, with the width that there is.
    """
    cells = [[title, *(row[at] for row in rows)] for at, title in enumerate(titles)]
    least = [_least(at, column, titles[at] in numbers) for at, column in enumerate(cells)]
    full = [max(cell_len(line) for text in column for line in text.split("\n")) for column in cells]
    groups: list[list[int]] = [[0]]
    for at in range(1, len(titles)):
        if len(groups[-1]) > 1 and _whole([least[one] for one in [*groups[-1], at]]) > width:
            groups.append([0])
        groups[-1].append(at)
    return [_widths(group, least, full, width) for group in groups]


def _least(at: int, column: Sequence[str], number: bool) -> int:
    """Return the width below which a word of the header, a name or a number would be broken."""
    header = _longest(column[0])
    longest = max((_longest(text) for text in column[1:]), default=0)
    return max(header, longest if number else min(longest, KEY if at == 0 else WORD))


def _longest(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1) + EDGE


def _widths(
    group: Sequence[int], least: Sequence[int], full: Sequence[int], width: int
) -> list[tuple[int, int]]:
    """Return the columns of one table with their widths: the least ones, and then what is left, in turn."""
    given = {at: least[at] for at in group}
    if (over := _whole(list(given.values())) - width) > 0:
        given[group[-1]] = max(given[group[-1]] - over, 1)
    left = width - _whole(list(given.values()))
    while left > 0 and (open_ := [at for at in group if given[at] < full[at]]):
        for at in open_[:left]:
            given[at] += 1
        left -= min(left, len(open_))
    return list(given.items())


__all__ = ["fitted"]

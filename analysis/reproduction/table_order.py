"""Put the rows and columns of an item in the order of the paper's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from .item_runs import Reproduction
from .printed import printed_values

WHERE = ("table", "metric")  # keys of a printed number that name a table rather than a cell


def table_order(item: Reproduction) -> tuple[list[str], list[str]]:
    """Return the rows and the columns of an item's table, with a column of averages after what it averages.

    Printed rows and columns are in the order of the print. The others keep their place in item.json.
    """
    cells = item.about["cells"]
    paper = item.about["paper"]
    printed = [cell for cell in cells if cell["printed"]]
    rows = _sorted(
        (cell["row"] for cell in cells), {cell["row"]: _row_rank(paper, cell["printed"]) for cell in printed}
    )
    columns = _sorted(
        (cell["column"] for cell in cells),
        {cell["column"]: _column_rank(paper, cell["printed"]) for cell in printed},
    )
    for average in item.about.get("averages", ()):
        parts = [at for at, column in enumerate(columns) if column in average["of"]]
        columns.insert(max(parts, default=len(columns) - 1) + 1, average["column"])
    return rows, columns


def _sorted(names: Iterable[str], ranks: Mapping[str, int | None]) -> list[str]:
    """Return each name once. Those with a rank exchange places among themselves until they are in order."""
    found = list(dict.fromkeys(names))
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    ordered = iter(sorted((name for name in found if name in known), key=lambda name: known[name]))
    return [next(ordered) if name in known else name for name in found]


def _row_rank(paper: str, where: Mapping[str, str]) -> int | None:
    names = tuple(name for name in (*WHERE, "method") if name in where)
    return _first(paper, names, where)


def _column_rank(paper: str, where: Mapping[str, str]) -> int | None:
    return _first(paper, tuple(name for name in where if name != "method"), where)


def _first(paper: str, names: tuple[str, ...], where: Mapping[str, str]) -> int | None:
    return _places(paper, names).get(tuple(where[name] for name in names))


@lru_cache(maxsize=64)
def _places(paper: str, names: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Map the values of these columns of the printed numbers to the first line that has them."""
    frame = printed_values(paper)
    if not names or not set(names) <= set(frame.columns):
        return {}
    found: dict[tuple[str, ...], int] = {}
    for line, values in enumerate(zip(*(frame[name] for name in names), strict=True)):
        found.setdefault(tuple(map(str, values)), line)
    return found

"""Put the rows and columns of an item in the order of the paper's table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from .item_runs import Place, Reproduction
from .printed import printed_values

WHERE = ("table", "metric")  # keys of a printed number that name a table rather than a cell


def table_order(item: Reproduction) -> tuple[list[str], list[str]]:
    """Return the rows and the columns of an item's table, with a column of averages after what it averages.

    Printed rows and columns are in the order of the print. Each of the others stays behind the one that it
    follows in item.json, as "FedAvg (held out)" follows "FedAvg".
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


def places_in_order(item: Reproduction, places: Collection[Place]) -> list[Place]:
    """Return the places (row, column) in the order of the paper's table, column by column."""
    rows, columns = table_order(item)
    return [(row, column) for column in columns for row in rows if (row, column) in places]


def _sorted(names: Iterable[str], ranks: Mapping[str, int | None]) -> list[str]:
    """Return each name once, in the order of the ranks. Names without a rank follow the one before them."""
    blocks: list[tuple[int, list[str]]] = [(-1, [])]
    for name in dict.fromkeys(names):
        rank = ranks.get(name)
        if rank is None:
            blocks[-1][1].append(name)
        else:
            blocks.append((rank, [name]))
    return [name for _, block in sorted(blocks, key=lambda block: block[0]) for name in block]


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
    places: dict[tuple[str, ...], int] = {}
    for line, values in enumerate(zip(*(frame[name] for name in names), strict=True)):
        places.setdefault(tuple(map(str, values)), line)
    return places

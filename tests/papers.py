"""The tables and figures of the four papers."""

from __future__ import annotations

from functools import cache

from raffed.tables.catalogue import items_of
from raffed.tables.items import Item

PAPERS = ("fedmr", "map", "gldp", "mpfedcon")


@cache
def items() -> dict[str, Item]:
    """Return every table and figure of the papers, such as `fedmr/table1` → its item."""
    return {key: item for paper in PAPERS for key, item in items_of(paper).items()}

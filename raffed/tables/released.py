"""An item as its paper's released code computes it, if that code and its settings are known."""

from __future__ import annotations

from dataclasses import replace

from raffed.errors import UsageError
from raffed.tables.catalogue import all_items
from raffed.tables.items import Item


def as_released(item: Item) -> Item:
    """Return the item by its paper's own protocol: a cell for each setting of the released code. The best one
    counts.

    Claims that two rows are the same numbers are left out, because they are laws of the methods as raffed
    defines them.
    """
    if item.released is None:
        known = ", ".join(key for key, one in all_items().items() if one.released is not None)
        raise UsageError(f"{item.key}: it has no settings of a released code; these items have some: {known}")
    cells = tuple(
        replace(cell, config=config, setting=setting)
        for cell in item.cells
        for setting, config in item.released(cell.config).items()
    )
    claims = tuple(one for one in item.claims if one.within != 0)
    title = f"{item.title}, as the released code"
    note = (
        "the released code's variants of the methods and its settings; shown is the best by this table's own "
        "test accuracy, "
        "as in the paper: optimistic, most of all where rows try more settings than others"
    )
    return replace(item, name=f"{item.name}-released", title=title, cells=cells, note=note, claims=claims)

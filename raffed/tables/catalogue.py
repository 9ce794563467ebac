"""The tables and figures of papers as runs, which stand beside raffed and are found by entry points.

An item names methods, data sets, splits, networks and measures as the papers do. A name that no registry has
yet is listed as missing, and the item becomes available once it is registered. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import TypeAlias

from raffed.config.run import Data, Federation, Model, RunConfig
from raffed.config.training import Local
from raffed.errors import UnknownNameError, UsageError
from raffed.tables.items import Cell, Item

Argument: TypeAlias = float | str  # of a method, in an item


@functools.cache
def papers() -> dict[str, str]:
    """Return paper → the module whose ITEMS are its tables, as the entry points `raffed.tables` name them."""
    return {
        name: module for entry in entry_points(group="raffed.tables") for name, module in entry.load().items()
    }


@functools.cache
def items_of(paper: str) -> dict[str, Item]:
    """Return the tables and figures of one paper, such as `fedmr/table1` → its item."""
    return {item.key: item for item in importlib.import_module(papers()[paper]).ITEMS}


@functools.cache
def all_items() -> dict[str, Item]:
    """Return every table that is installed. To make all takes seconds."""
    return {key: item for paper in papers() for key, item in items_of(paper).items()}


def find_item(text: str) -> Item:
    """Return the item PAPER/ITEM, in any case.

    Raises:
        UnknownNameError: There is no such item. The message lists the most similar ones.
    """
    name = text.strip().lower()
    paper = name.partition("/")[0]
    few = items_of(paper) if paper in papers() else {}
    if name in few:
        return few[name]
    known = all_items()
    if name not in known:
        raise UnknownNameError("table or figure", text, known)
    return known[name]


def chosen(item: Item, only: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells whose row and column match every text of `only`, in any case.

    In `a,b` one of the two must match. The complete name of a row or a column matches only that name
    ("fedavg" is not FedAvg+FT); any other text matches every name that contains it. A text with commas is
    taken as a whole if it matches anything, such as [20,4,5].

    Raises:
        UnknownNameError: A text matches no cell.
        UsageError: Each text matches a cell, and no cell matches all of them.
    """
    found = item.cells
    names = {name.lower() for cell in item.cells for name in (cell.row, cell.column)}

    def matches(cell: Cell, text: str) -> bool:
        if text in names:
            return text in (cell.row.lower(), cell.column.lower())
        return text in f"{cell.row} {cell.column}".lower()

    for text in only:
        whole = text.strip().lower()
        parts = [one.strip() for one in whole.split(",") if one.strip()]
        among = [whole] if any(matches(cell, whole) for cell in item.cells) else parts
        fitting = {id(cell) for cell in item.cells if any(matches(cell, one) for one in among)}
        if not fitting:
            known = {cell.row for cell in item.cells} | {cell.column for cell in item.cells}
            raise UnknownNameError(f"row or column of {item.key}", text, known)
        found = tuple(cell for cell in found if id(cell) in fitting)
    if only and not found:  # a study has no cells
        raise UsageError(
            f"no cell of {item.key} matches all of {', '.join(map(repr, only))} at once, as several --only "
            f"ask; for cells that match one of them give --only {','.join(only)!r}"
        )
    return found


def run_of(
    method: str, dataset: str, split: str, model: str, local: Local, federation: Federation, **args: Argument
) -> RunConfig:
    """Return the configuration of a run. `args` are the method's arguments."""
    return RunConfig(method, args, Data(dataset, split), Model(model), local, federation)

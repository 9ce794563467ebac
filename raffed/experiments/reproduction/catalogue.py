"""The tables and figures of the four papers as runs: what belongs to each, at which scale, and what is still
missing for it.

An item names methods, data sets, splits, networks and measures as the papers do; what a registry does not
hold yet is listed as missing, and the item lights up when it is registered. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from raffed.config.run import Data, Federation, Model, RunConfig
from raffed.config.training import Local
from raffed.errors import UnknownNameError
from raffed.experiments.reproduction.items import Cell, Item

PAPERS = ("fedmr", "map", "gldp", "mpfedcon")


@functools.lru_cache(maxsize=1)
def items() -> dict[str, Item]:
    """Every table and figure: `fedmr/table1` → its item."""
    modules = [importlib.import_module(f"raffed.experiments.papers.{paper}.items") for paper in PAPERS]
    return {item.key: item for module in modules for item in module.ITEMS}


def find_item(text: str) -> Item:
    """The item PAPER/ITEM, in any case; an UnknownNameError lists the nearest."""
    known = items()
    name = text.strip().lower()
    if name not in known:
        raise UnknownNameError("table or figure", text, known)
    return known[name]


def chosen(item: Item, only: Sequence[str]) -> tuple[Cell, ...]:
    """The cells whose row and column match every text of `only` (`a,b`: one of the two), in any case.

    The whole name of a row or a column stands for it alone ("fedavg" is not FedAvg+FT), any other text for
    what contains it; one with commas is taken whole where it matches anything: [20,4,5].
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
        found = tuple(cell for cell in found if any(matches(cell, one) for one in among))
    if only and not found:
        known = {cell.row for cell in item.cells} | {cell.column for cell in item.cells}
        raise UnknownNameError(f"row or column of {item.key}", " ".join(only), known)
    return found


def run_of(
    method: str, dataset: str, split: str, model: str, local: Local, federation: Federation, **args: Any
) -> RunConfig:
    """A run in one line; `args` are the method's."""
    return RunConfig(method, args, Data(dataset, split), Model(model), local, federation)

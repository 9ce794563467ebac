"""What a view of an item is, and which of its cells have runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..runs.files import JsonObject
from ..runs.load import Runs
from ..studies import DrawnFigure
from ..table import TextTable
from .item_runs import Reproduction, cell_names

WORDS = frozenset({"Method", "Column", "Data set"})


class View(NamedTuple):
    """Figures, and tables by their headings."""

    figures: list[DrawnFigure]
    tables: dict[str, TextTable]


Viewer = Callable[[Reproduction, Runs], View]


def cells_with_runs(item: Reproduction, runs: Runs) -> list[tuple[JsonObject, list[str]]]:
    """Return the cells that have runs, with these runs."""
    cells = [(cell, cell_names(item, cell, runs)) for cell in item.about["cells"]]
    return [(cell, names) for cell, names in cells if names]

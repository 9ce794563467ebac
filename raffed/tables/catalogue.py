"""The tables and figures of papers as runs, which stand beside raffed and are found by entry points.

An item names methods, data sets, splits, networks and measures as the papers do. A name that no registry has
yet is listed as missing, and the item becomes available once it is registered. Nothing here imports torch.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TypeAlias

from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Model
from raffed.config.training import Local
from raffed.errors import UnknownNameError, UsageError, check_choice, check_range
from raffed.methods.authors import is_authors
from raffed.own import gate
from raffed.own.located import is_reference
from raffed.own.resolve import load, sources_of
from raffed.own.user_code import user_errors
from raffed.tables.items import MEASURES, Cell, Claim, Item

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
    if name not in few:
        raise UnknownNameError("table or figure", text, all_items())
    return few[name]


def chosen(item: Item, only: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells whose row and column match every text of `only`, in any case.

    In `a,b` one of the two must match. The complete name of a row or a column matches only that name
    ("fedavg" is not FedAvg+FT); any other text matches every name that contains it. A text with commas is
    taken as a whole if it matches anything, such as [20,4,5].

    Raises:
        UnknownNameError: A text matches no cell.
        UsageError: Each text matches a cell, and no cell matches all of them.
    """
    cells = item.cells
    names = {name.lower() for cell in item.cells for name in (cell.row, cell.column)}

    def matches(cell: Cell, text: str) -> bool:
        if text in names:
            return text in (cell.row.lower(), cell.column.lower())
        return text in f"{cell.row} {cell.column}".lower()

    for text in only:
        whole = text.strip().lower()
        parts = [part.strip() for part in whole.split(",") if part.strip()]
        among = [whole] if any(matches(cell, whole) for cell in item.cells) else parts
        fitting = {id(cell) for cell in item.cells if any(matches(cell, wanted) for wanted in among)}
        if not fitting:
            known = {cell.row for cell in item.cells} | {cell.column for cell in item.cells}
            raise UnknownNameError(f"row or column of {item.key}", text, known)
        cells = tuple(cell for cell in cells if id(cell) in fitting)
    if only and not cells:  # a study has no cells
        raise UsageError(
            f"no cell of {item.key} matches all of {', '.join(map(repr, only))} at once, as several --only "
            f"ask; for cells that match one of them give --only {','.join(only)!r}"
        )
    return cells


def run_of(
    method: str, dataset: str, split: str, model: str, local: Local, federation: Federation, **args: Argument
) -> RunConfig:
    """Return the configuration of a run. `args` are the method's arguments."""
    return RunConfig(method, args, Data(dataset, split), Model(model), local, federation)


# Tables of one's own: runs with the numbers that somebody printed, and what is claimed of them.


Place: TypeAlias = tuple[str, str]
OWN = "own"  # the paper of a table that names none
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def table(
    name: str,
    title: str,
    runs: Mapping[Place, RunConfig],
    *,
    printed: Mapping[Place, float] | None = None,
    measure: str = "accuracy_last",
    margin: float = 1.0,
    baseline: str = "",
    claims: Iterable[Claim] = (),
    note: str = "",
    proxy: Callable[[RunConfig], RunConfig | None] | None = None,
    paper: str = OWN,
) -> Item:
    """Describe a table of runs, for `raffed reproduce --items`.

    Args:
        name: Small letters, digits, - and _; tables and report are written below PAPER/NAME.
        title: What the table shows.
        runs: (row, column) → the run behind this cell, at full scale.
        printed: (row, column) → the number that is printed for it, in the unit of the measure.
        measure: How a number is read from a run, such as "accuracy_last" or "personal_last", in percent.
        margin: How far from the printed number ours may lie and mean the same, in the measure's unit.
        baseline: The row with which others are compared at proxy scale; without it the first row.
        claims: What is claimed of the cells, judged seed by seed.
        note: Written below the table.
        proxy: Function from a run to a cheaper one for the scale "proxy", or to None to leave it out. Without
            it that scale is the full one.
        paper: Name of the folder of several tables; not that of a paper of raffed's.

    Returns:
        The table, which `raffed reproduce --items FILE:NAME` and `raffed.reproduce` take.

    Raises:
        UsageError: A name, a measure, a printed number or a claim does not fit.

    Example:
        >>> import raffed
        >>> table = raffed.table("t", "One run", {("FedAvg", "digits"): raffed.RunConfig()})
        >>> table.key
        'own/t'
    """
    _check_settings(name, paper, measure, margin, runs)
    numbers = dict(printed or {})
    _check_places(f"table {name}: a printed number", numbers, runs)
    cells = tuple(
        Cell(*place, config, {"value": repr(float(numbers[place]))} if place in numbers else {})
        for place, config in runs.items()
    )
    claimed = tuple(claims)
    for claim in claimed:
        _check_places(f"table {name}: the claim {claim.text!r}", sorted(claim.places({})), runs)
    rows = list(dict.fromkeys(row for row, _ in runs))
    first = check_choice("baseline", baseline or rows[0], rows)
    return Item(paper, name, title, measure, cells, (), margin, first, note, proxy, claims=claimed)


def _check_settings(
    name: str, paper: str, measure: str, margin: float, runs: Mapping[Place, RunConfig]
) -> None:
    for what, text in (("name", name), ("paper", paper)):
        if not NAME.fullmatch(text):
            raise UsageError(f"table {what} {text!r}: use small letters, digits, - and _, such as table-1")
    if paper in papers():
        raise UsageError(f"table {name}: {paper!r} is a paper of raffed's own; choose another `paper`")
    check_choice("measure", measure, MEASURES)
    check_range("margin", margin, 0.0, 100.0)
    if not runs:
        raise UsageError(f"table {name}: it has no runs; give {{(row, column): RunConfig(...)}}")
    for place, config in runs.items():
        if not isinstance(place, tuple) or [type(part) for part in place] != [str, str]:
            raise UsageError(f"table {name}: {place!r} is not a pair of texts (row, column)")
        if not isinstance(config, RunConfig):
            raise UsageError(f"table {name}, {', '.join(place)}: {type(config).__name__} is not a RunConfig")


def _check_places(what: str, places: Iterable[Place], runs: Mapping[Place, RunConfig]) -> None:
    for place in places:
        if place not in runs:
            known = [f"({row}, {column})" for row, column in runs]
            raise UnknownNameError(f"cell of {what}", f"({place[0]}, {place[1]})", known)


def own_items(reference: str) -> dict[str, Item]:
    """Return the tables behind a reference, by their keys, each with the source files that it came from.

    Args:
        reference: `package.module:NAME` or `./file.py:NAME`; NAME is a table, several of them in a list or
            a dictionary, or a function without arguments that returns these.

    Raises:
        UsageError: There is no table behind it.
        UserCodeError: The user's file raised an error.
    """
    if not is_reference(reference):
        raise UsageError(
            f"--items {reference!r} is not a reference; write package.module:TABLE or ./items.py:TABLE"
        )
    loaded = load(reference)
    if inspect.isfunction(loaded):
        with user_errors(reference):
            loaded = loaded()
    several = [*loaded.values()] if isinstance(loaded, Mapping) else loaded
    given = [*several] if isinstance(several, list | tuple) else [several]
    tables = [item for item in given if isinstance(item, Item)]
    if not tables or len(tables) < len(given):
        odd = next((value for value in given if not isinstance(value, Item)), loaded)
        raise UsageError(
            f"{reference}: a {type(odd).__name__} is not a table; make it by raffed.table(...), or give a "
            f"list of such tables"
        )
    methods = {cell.config.method for item in tables for cell in item.cells}
    gate.note_in_table([*filter(is_authors, methods)])
    keys = [item.key for item in tables]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(f"{reference}: there are two tables {twice}; give them different names")
    sources = sources_of(reference)
    return {item.key: replace(item, source=sources) for item in tables}


def own_item(reference: str, text: str | None) -> Item:
    """Return one of the tables behind a reference.

    Args:
        reference: As in `own_items`.
        text: Its key or name; not needed if there is one table.

    Raises:
        UsageError: There are several tables and none is named.
        UnknownNameError: There is no such table.
    """
    known = own_items(reference)
    if text is None and len(known) == 1:
        return next(iter(known.values()))
    names = {name: item for item in known.values() for name in (item.key, item.name)}
    if text is None:
        raise UsageError(f"{reference} has {len(known)} tables; name one of {', '.join(known)}")
    if text.strip().lower() not in names:
        raise UnknownNameError(f"table of {reference}", text, names)
    return names[text.strip().lower()]


# An item as its paper's released code computes it, if that code and its settings are known.


def as_released(item: Item) -> Item:
    """Return the item by its paper's own protocol: a cell for each setting of the released code. The best one
    counts.

    Claims that two rows are the same numbers are left out, because they are laws of the methods as raffed
    defines them.
    """
    if item.released is None:
        known = ", ".join(key for key, other in all_items().items() if other.released is not None)
        raise UsageError(f"{item.key}: it has no settings of a released code; these items have some: {known}")
    cells = tuple(
        replace(cell, config=config, setting=setting)
        for cell in item.cells
        for setting, config in item.released(cell.config).items()
    )
    claims = tuple(claim for claim in item.claims if claim.within != 0)
    title = f"{item.title}, as the released code"
    note = (
        "the released code's variants of the methods and its settings; shown is the best by this table's own "
        "test accuracy, as in the paper: optimistic, most of all where rows try more settings than others"
    )
    return replace(item, name=f"{item.name}-released", title=title, cells=cells, note=note, claims=claims)

"""Tables of one's own: runs with the numbers that somebody printed, and what is claimed of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from raffed.config.run import RunConfig
from raffed.errors import UnknownNameError, UsageError, check_choice, check_range
from raffed.own.resolve import is_reference, load, sources_of
from raffed.own.user_code import user_errors
from raffed.tables.catalogue import papers
from raffed.tables.items import Cell, Claim, Item
from raffed.tables.measures import MEASURES

T = TypeVar("T")
C = TypeVar("C")
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
        >>> one = raffed.table("t", "One run", {("FedAvg", "digits"): raffed.RunConfig()})
        >>> one.key
        'own/t'
    """
    _check_settings(name, paper, measure, margin, runs)
    numbers = dict(printed or {})
    _check_places(f"table {name}: a printed number", numbers, runs)
    cells = tuple(
        Cell(*place, config, {"value": repr(float(numbers[place]))} if place in numbers else {})
        for place, config in runs.items()
    )
    made = tuple(claims)
    for claim in made:
        named = [(term[1], term[2]) for term in (*claim.terms, *claim.given)]
        _check_places(f"table {name}: the claim {claim.text!r}", named, runs)
    rows = list(dict.fromkeys(row for row, _ in runs))
    check_choice("baseline", baseline or rows[0], rows)
    return Item(
        paper=paper,
        name=name,
        title=title,
        measure=measure,
        cells=cells,
        margin=margin,
        baseline=baseline or rows[0],
        note=note,
        proxy=proxy,
        claims=made,
    )


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
        _check_cell(name, place, config)


def _check_cell(name: str, place: T, config: C) -> None:
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
    found = load(reference)
    if inspect.isfunction(found):
        with user_errors(reference):
            found = found()
    given = _tables(found)
    tables = [one for one in given if isinstance(one, Item)]
    if not tables or len(tables) < len(given):
        odd = next((one for one in given if not isinstance(one, Item)), found)
        raise UsageError(
            f"{reference}: a {type(odd).__name__} is not a table; make it by raffed.table(...), or give a "
            f"list of such tables"
        )
    keys = [one.key for one in tables]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(f"{reference}: there are two tables {twice}; give them different names")
    sources = sources_of(reference)
    return {one.key: replace(one, source=sources) for one in tables}


def _tables(found: T) -> list[T | Item]:
    if isinstance(found, Mapping):
        return list(found.values())
    return list(found) if isinstance(found, list | tuple) else [found]


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


__all__ = ["own_item", "own_items", "table"]

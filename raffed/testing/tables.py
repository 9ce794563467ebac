"""The contract of a table: runs that exist, and statements about them that could be false."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raffed.config.run import RunConfig
from raffed.data.splits import parse_split
from raffed.errors import UsageError
from raffed.runtime.run_method import method_of
from raffed.tables.catalogue import own_items
from raffed.tables.items import MEASURES, SCALES, Cell, Claim, Item, lacking
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by
from raffed.testing.generators import global_draws


@dataclass(frozen=True)
class TableSubject:
    """The tables behind a reference, and how they are made again."""

    load: Callable[[], tuple[Item, ...]]
    items: tuple[Item, ...]

    def runs(self, scale: str) -> Iterator[tuple[str, RunConfig]]:
        """Yield what messages call a cell, and its run at a scale."""
        for item in self.items:
            for cell in item.cells:
                config = item.at(cell, scale)
                if config is not None:
                    yield _called(item, cell), config


def check_table(table: str, *, name: str | None = None) -> Findings:
    """Check a table, or several: that its cells can run, and that its numbers and claims say something.

    Nothing is trained; `raffed reproduce --items` at the scale "smoke" does that.

    Args:
        table: A reference such as "mylab.items:TABLE" to what `raffed.table` made, to a list or dictionary of
            such tables, or to a function without arguments that returns these.
        name: What messages call the table.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no table behind the reference.

    Example:
        >>> check_table("mylab.items:TABLE").ok  # doctest: +SKIP
        True
    """

    def load() -> tuple[Item, ...]:
        return tuple(own_items(table).values())

    return found_by(TABLE_CHECKS, TableSubject(load, load()), "table", name or table)


def _called(item: Item, cell: Cell) -> str:
    return f"{item.name}, cell ({', '.join(cell.place)})"


def _names(subject: TableSubject) -> str:
    for where, config in subject.runs("full"):
        if missing := lacking(config):
            return f"{where}: there is no {missing[0]}"
    return ""


def _possible(subject: TableSubject) -> str:
    for where, config in subject.runs("full"):
        try:
            method_of(config)
            parse_split(config.data.split, config.data.split_args)
        except UsageError as error:
            return f"{where}: {error}"
    return ""


def _scales(subject: TableSubject) -> str:
    for scale in SCALES:
        if not any(True for _ in subject.runs(scale)):
            return f"no cell is left at the scale {scale}; `proxy` returns None for every run"
        for where, config in subject.runs(scale):
            if not issubclass(type(config), RunConfig):
                return (
                    f"{where}: `proxy` returned a {type(config).__name__}; it must return a RunConfig or None"
                )
    return ""


def _same_twice(subject: TableSubject) -> str:
    again = TableSubject(subject.load, subject.load())
    for scale in SCALES:
        for (where, one), (_, other) in zip(subject.runs(scale), again.runs(scale), strict=True):
            if one.identity() != other.identity():
                return f"{where}: the run is another one when the table is made again, so it is never found"
    return ""


def _generator(subject: TableSubject) -> str:
    return global_draws(subject.load)


def _differ(subject: TableSubject) -> str:
    for item in subject.items:
        known: dict[tuple[str, str], str] = {}
        for cell in item.cells:
            key = cell.config.identity(), cell.measure
            if key in known:
                return f"{item.name}: the cells {known[key]} and ({', '.join(cell.place)}) are the same run"
            known[key] = f"({', '.join(cell.place)})"
    return ""


def _percent(subject: TableSubject) -> str:
    printed = [(item, cell) for item in subject.items for cell in item.cells if "value" in cell.printed]
    if not printed:
        raise NotApplicableError("nothing is printed")
    for item in subject.items:
        values = [float(cell.printed["value"]) for one, cell in printed if one is item]
        if values and MEASURES[item.measure].endswith("%") and max(map(abs, values)) <= 1.0:
            return f"{item.name}: no printed number is above 1, and {item.measure} is in percent"
    return ""


def _claims(subject: TableSubject) -> str:
    claims = [(item, claim) for item in subject.items for claim in item.claims]
    if not claims:
        raise NotApplicableError("nothing is claimed")
    for item, claim in claims:
        if _cancels(claim):
            return f"{item.name}: the claim {claim.text!r} compares a cell with itself"
    return ""


def _cancels(claim: Claim) -> bool:
    """Return whether the terms of a claim add up to nothing, whatever the cells hold."""
    total: dict[tuple[str, ...], float] = defaultdict(float)
    for term in claim.terms:
        total[term[1:]] += term[0]
    return not any(total.values())


_LOOKS: tuple[tuple[str, str, Callable[[TableSubject], str]], ...] = (
    ("names-exist", "Every method, data set, network and split of a cell exists.", _names),
    ("runs-possible", "Every cell's method and split take the arguments that they are given.", _possible),
    ("every-scale", "There are runs at every scale.", _scales),
    ("same-twice", "The runs are the same when the table is made again.", _same_twice),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("cells-differ", "No two cells are the same run.", _differ),
    ("printed-in-percent", "Printed numbers have the unit of the measure.", _percent),
    ("claims-can-be-false", "No claim compares a cell with itself.", _claims),
)
TABLE_CHECKS: tuple[Check[TableSubject], ...] = tuple(Check(*one) for one in _LOOKS)

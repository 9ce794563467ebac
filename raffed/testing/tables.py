"""The contract of a table: runs that exist, and statements about them that could be false."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raffed.config.run import RunConfig
from raffed.data.splits import parse_split
from raffed.errors import UsageError
from raffed.runs.run import check_names
from raffed.runtime.run_method import method_of
from raffed.tables.catalogue import own_items
from raffed.tables.items import MEASURES, SCALES, Cell, Claim, Item
from raffed.testing.contract import Findings, FunctionContract, NotApplicableError


@dataclass(frozen=True)
class TableContract(FunctionContract[None, list[str]]):
    """The tables behind a reference: runs that exist, and statements about them that could be false."""

    load: Callable[[], tuple[Item, ...]]
    items: tuple[Item, ...]

    kind = "table"

    def remedy(self) -> str:
        """Return why the runs must be the same."""
        return "a run that is another one when the table is made again is never found"

    def examples(self) -> list[None]:
        """Return one call, which has no arguments."""
        return [None]

    def call(self, arguments: None) -> list[str]:
        """Return the identities of all runs of the tables, made anew."""
        again = TableContract(self.load, self.load())
        return [config.identity() for scale in SCALES for _, config in again.runs(scale)]

    def runs(self, scale: str) -> Iterator[tuple[str, RunConfig]]:
        """Yield what messages call a cell, and its run at a scale."""
        for item in self.items:
            for cell in item.cells:
                config = item.at(cell, scale)
                if config is not None:
                    yield _called(item, cell), config

    def check_names_exist(self) -> str:
        """Every method, data set, network and split of a cell exists."""
        for where, config in self.runs("full"):
            try:
                check_names(config)
            except UsageError as error:
                return f"{where}: {error}"
        return ""

    def check_runs_possible(self) -> str:
        """Every cell's method and split take the arguments that they are given."""
        for where, config in self.runs("full"):
            try:
                method_of(config)
                parse_split(config.data.split, config.data.split_args)
            except UsageError as error:
                return f"{where}: {error}"
        return ""

    def check_every_scale(self) -> str:
        """There are runs at every scale."""
        for scale in SCALES:
            if not any(True for _ in self.runs(scale)):
                return f"no cell is left at the scale {scale}; `proxy` returns None for every run"
            for where, config in self.runs(scale):
                if not issubclass(type(config), RunConfig):
                    kind = type(config).__name__
                    return f"{where}: `proxy` returned a {kind}; it must return a RunConfig or None"
        return ""

    def check_cells_differ(self) -> str:
        """No two cells are the same run."""
        for item in self.items:
            known: dict[tuple[str, str], str] = {}
            for cell in item.cells:
                key = cell.config.identity(), cell.measure
                if key in known:
                    return f"{_called(item, cell)}: its run is also that of the cell ({known[key]})"
                known[key] = ", ".join(cell.place)
        return ""

    def check_printed_in_percent(self) -> str:
        """Printed numbers have the unit of the measure."""
        printed = [(item, cell) for item in self.items for cell in item.cells if "value" in cell.printed]
        if not printed:
            raise NotApplicableError("nothing is printed")
        for item in self.items:
            values = [float(cell.printed["value"]) for home, cell in printed if home is item]
            if values and MEASURES[item.measure].endswith("%") and max(map(abs, values)) <= 1.0:
                return f"{item.name}: no printed number is above 1, and {item.measure} is in percent"
        return ""

    def check_claims_can_be_false(self) -> str:
        """No claim compares a cell with itself."""
        claims = [(item, claim) for item in self.items for claim in item.claims]
        if not claims:
            raise NotApplicableError("nothing is claimed")
        for item, claim in claims:
            if _cancels(claim):
                return f"{item.name}: the claim {claim.text!r} compares a cell with itself"
        return ""


def _called(item: Item, cell: Cell) -> str:
    return f"{item.name}, cell ({', '.join(cell.place)})"


def _cancels(claim: Claim) -> bool:
    """Return whether the terms of a claim add up to nothing, whatever the cells hold."""
    total: dict[tuple[str, ...], float] = defaultdict(float)
    for term in claim.terms:
        total[term[1:]] += term[0]
    return not any(total.values())


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

    return TableContract(load, load()).findings(name or table)

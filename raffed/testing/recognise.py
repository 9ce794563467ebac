"""Recognise an object by what it is, such as a method, a network or a metric, and check it.

The contract of a table stands here as well.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from raffed.config.federation import SELECTIONS
from raffed.config.run import RunConfig
from raffed.config.training import CLOCK, SCHEDULES
from raffed.config.validation import Value
from raffed.core.method import Method
from raffed.data.array_cache import CACHED
from raffed.data.catalogue import DATASETS
from raffed.data.dataset import Dataset
from raffed.data.importers.reference import guessed, parse_reference
from raffed.data.split import Split
from raffed.data.splits import parse_split
from raffed.errors import UsageError, check_choice
from raffed.federation.selection import GIVEN
from raffed.methods import METHODS
from raffed.models import MODELS, model_name
from raffed.models.net import Net
from raffed.own.gate import entry_points
from raffed.own.names import mark_of
from raffed.own.resolve import load
from raffed.runs.run import check_names
from raffed.runtime.run_method import method_of
from raffed.tables.catalogue import own_items
from raffed.tables.items import MEASURES, SCALES, Cell, Claim, Item
from raffed.testing.contract import Findings, FunctionContract, Kind, NotApplicableError, is_code
from raffed.testing.functions import check_loss, check_metric, check_schedule, check_selection
from raffed.testing.inputs import check_dataset, check_model, check_split
from raffed.testing.methods import check_method

T = TypeVar("T")


# The contract of a table: runs that exist, and statements about them that could be false.


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


# What a kind is recognised by.


@dataclass(frozen=True)
class KindOfObject:
    """What is known of a kind.

    Attributes:
        check: The function that checks an object of it.
        classes: Its objects are of these classes, or these are what its functions return.
        names: The names that raffed has for its objects.
        group: The group of entry points.
        marked: Whether a function of this kind may have a decorator of raffed's.
        has_args: Whether the check takes arguments.
    """

    check: Callable[..., Findings]
    classes: tuple[type, ...] = ()
    names: Collection[str] = ()
    group: str = ""
    marked: bool = False
    has_args: bool = True


KINDS: dict[Kind, KindOfObject] = {
    "method": KindOfObject(check_method, (Method,), METHODS, "raffed.methods", marked=True),
    "model": KindOfObject(check_model, (nn.Module, Net), MODELS, "raffed.models"),
    "dataset": KindOfObject(check_dataset, (Dataset,), DATASETS, "raffed.datasets", has_args=False),
    "split": KindOfObject(check_split, (Split,), group="raffed.splits", marked=True),
    "loss": KindOfObject(check_loss, group="raffed.losses", marked=True),
    "metric": KindOfObject(check_metric, group="raffed.metrics", marked=True, has_args=False),
    "schedule": KindOfObject(check_schedule, names=SCHEDULES),
    "selection": KindOfObject(check_selection, names=SELECTIONS),
    "table": KindOfObject(check_table, (Item,), has_args=False),
}
WANTED = (
    "a function that returns a Method, a network (nn.Module), a Dataset, a Split, a table (raffed.table), or "
    "a loss, metric, schedule, selection or split, whose parameters have the names in the documentation"
)


def check(
    reference: str,
    args: Mapping[str, Value] | None = None,
    kind: str | None = None,
    dataset: str | None = None,
) -> Findings:
    """Check what a reference or a name stands for.

    Args:
        reference: A reference such as "mylab.methods:myprox", data such as "csv:table.csv?label=y", or a
            name of a method, network, data set, split, schedule or selection, or an entry point.
        args: Arguments of a method, network, split, loss, schedule or selection.
        kind: What it is, such as "loss", where that cannot be recognised.
        dataset: The data that a network is checked with, such as "npz:words.npz".

    Returns:
        One outcome for each check of its kind.

    Raises:
        UsageError: There is nothing of this name, or it is of no kind that can be checked.

    Example:
        >>> check("fedprox").kind
        'method'
    """
    known, where = _recognised(reference) if kind is None else (_said(kind), reference)
    if known == "model":
        return check_model(where, args, dataset=dataset, name=reference)
    if dataset is not None:
        raise UsageError(f"{reference} is a {known}, and --dataset is for networks; leave it out")
    if not KINDS[known].has_args:
        if args:
            raise UsageError(
                f"{reference} is a {known}, which takes no arguments here; leave out {', '.join(args)}"
            )
        return KINDS[known].check(where, name=reference)
    return KINDS[known].check(where, args=args, name=reference)


def _said(kind: str) -> Kind:
    kinds: dict[str, Kind] = {name: name for name in KINDS}
    return kinds[check_choice("kind", kind, kinds)]


def _recognised(text: str) -> tuple[Kind, str]:
    """Return what a text stands for, and the name or reference by which it is found."""
    if parse_reference(text) is not None or text.startswith(CACHED):
        return "dataset", text
    if is_code(text) or text.startswith("timm:"):
        model_name(text)  # refuses names of timm's, whether it is installed or not
        return _kind_of_code(text), text
    low = text.strip().lower()
    for kind, about in KINDS.items():
        if low in about.names:
            return kind, low
    for kind, about in KINDS.items():
        if about.group and (registered := entry_points(about.group).get(low)):
            return kind, registered.reference
    try:
        parse_split(text)
    except UsageError as error:
        if near := guessed(text):
            raise UsageError(f"{text!r} is a file or folder; did you mean {near}?") from error
        raise UsageError(
            f"{text!r} is neither a reference (package.module:name, ./file.py:name) nor the name of a "
            "method, network, data set, split, schedule or selection; `raffed methods` and its like list the "
            "names"
        ) from error
    return "split", text


def _kind_of_code(reference: str) -> Kind:
    """Return the kind of what a reference names, from its class or from what it says that it returns."""
    thing = load(reference)
    kind = _kind_of_object(thing)
    if kind is None and callable(thing) and not inspect.isclass(thing):
        kind = _kind_of_function(thing)
    if kind is None:
        raise UsageError(
            f"{reference} is a {type(thing).__name__}; it must be {WANTED}; of a "
            f"function without `-> Method` or the like, say what it is: --kind {'|'.join(KINDS)}"
        )
    return kind


def _kind_of_object(thing: T) -> Kind | None:
    """Return the kind of an object, of a class, or of a list or dictionary of tables."""
    tables = list(thing.values()) if isinstance(thing, Mapping) else thing
    if isinstance(tables, list | tuple) and tables and all(isinstance(item, Item) for item in tables):
        return "table"
    for kind, about in KINDS.items():
        if isinstance(thing, about.classes) or (inspect.isclass(thing) and issubclass(thing, about.classes)):
            return kind
    return None


def _kind_of_function(thing: T) -> Kind | None:
    """Return the kind that a function's decorator, its annotation or the names of its parameters say."""
    if not inspect.isfunction(thing):
        return None
    for kind, about in KINDS.items():
        if about.marked and mark_of(thing, kind, None) is not None:
            return kind
    inner = inspect.unwrap(thing)
    returns = getattr(inner, "__annotations__", {}).get("return", "")
    text = returns if isinstance(returns, str) else str(getattr(returns, "__name__", returns))
    word = re.split(r"[\W]+", text.strip("'\"]"))[-1]
    for kind, about in KINDS.items():
        if word in [home.__name__ for home in about.classes]:
            return kind
    return _kind_by_parameters(list(inspect.signature(inner).parameters))


def _kind_by_parameters(known: list[str]) -> Kind | None:
    """Return the kind of a function that has the documented names of parameters."""
    first = known[:2]
    if tuple(first) == CLOCK:
        return "schedule"
    if "logits" in first:
        return "loss"
    if "scores" in first:
        return "metric"
    if "labels" in known and (first[0] == "labels" or {"rng", "clients", "owners"} & set(known)):
        return "split"
    if {"sizes", "count"} & set(known) and set(GIVEN) & set(known):
        return "selection"
    return "model" if {"in_shape", "num_classes"} & set(known) else None

"""Recognise an object by what it is, such as a method, a network or a metric, and check it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, ValuesView
from typing import TypeVar, get_args

from torch import nn

from raffed.config.optimizers import CLOCK, SCHEDULES
from raffed.config.selection import SELECTIONS
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
from raffed.models import MODELS
from raffed.own.gate import entry_points
from raffed.own.names import mark_of
from raffed.own.resolve import load
from raffed.tables.items import Item
from raffed.testing.datasets import check_dataset, check_split
from raffed.testing.findings import Findings, Kind, is_code
from raffed.testing.losses import check_loss
from raffed.testing.methods import check_method
from raffed.testing.metrics import check_metric
from raffed.testing.models import check_model
from raffed.testing.schedules import check_schedule
from raffed.testing.selections import check_selection
from raffed.testing.tables import check_table

T = TypeVar("T")
RETURNED: dict[str, Kind] = {
    "Method": "method",
    "Module": "model",
    "Net": "model",
    "Dataset": "dataset",
    "Split": "split",
    "Item": "table",
}
MARKED: tuple[Kind, ...] = ("method", "split", "loss", "metric")  # kinds with a decorator
NAMES: dict[Kind, Collection[str]] = {
    "method": METHODS,
    "model": MODELS,
    "dataset": DATASETS,
    "schedule": SCHEDULES,
    "selection": SELECTIONS,
}
GROUPS: dict[Kind, str] = {
    "method": "raffed.methods",
    "model": "raffed.models",
    "dataset": "raffed.datasets",
    "split": "raffed.splits",
    "loss": "raffed.losses",
    "metric": "raffed.metrics",
}
WITHOUT_ARGUMENTS = ("dataset", "metric", "table")
WANTED = (
    "a function that returns a Method, a network (nn.Module), a Dataset, a Split, a table (raffed.table), or "
    "a loss, metric, schedule, selection or split, whose parameters have the names in the documentation"
)


def check(reference: str, args: Mapping[str, Value] | None = None, kind: str | None = None) -> Findings:
    """Check what a reference or a name stands for.

    Args:
        reference: A reference such as "mylab.methods:myprox", data such as "csv:table.csv?label=y", or a
            name of a method, network, data set, split, schedule or selection, or an entry point.
        args: Arguments of a method, network, split, loss, schedule or selection.
        kind: What it is, such as "loss", where that cannot be recognised.

    Returns:
        One outcome for each check of its kind.

    Raises:
        UsageError: There is nothing of this name, or it is of no kind that can be checked.

    Example:
        >>> check("fedprox").kind
        'method'
    """
    known, where = _recognised(reference) if kind is None else (_said(kind), reference)
    if args and known in WITHOUT_ARGUMENTS:
        raise UsageError(
            f"{reference} is a {known}, which takes no arguments here; leave out {', '.join(args)}"
        )
    checks: dict[Kind, Callable[[], Findings]] = {
        "method": lambda: check_method(where, args, name=reference),
        "model": lambda: check_model(where, args, name=reference),
        "dataset": lambda: check_dataset(where, name=reference),
        "split": lambda: check_split(where, args=args, name=reference),
        "loss": lambda: check_loss(where, args, name=reference),
        "metric": lambda: check_metric(where, name=reference),
        "schedule": lambda: check_schedule(where, args, name=reference),
        "selection": lambda: check_selection(where, args, name=reference),
        "table": lambda: check_table(where, name=reference),
    }
    return checks[known]()


def _said(kind: str) -> Kind:
    kinds: dict[str, Kind] = {one: one for one in get_args(Kind)}
    return kinds[check_choice("kind", kind, kinds)]


def _recognised(text: str) -> tuple[Kind, str]:
    """Return what a text stands for, and the name or reference by which it is found."""
    if parse_reference(text) is not None or text.startswith(CACHED):
        return "dataset", text
    if is_code(text):
        return _kind_of_code(text), text
    low = text.strip().lower()
    for kind, names in NAMES.items():
        if low in names:
            return kind, low
    for kind, group in GROUPS.items():
        if found := entry_points(group).get(low):
            return kind, found.reference
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
    found = load(reference)
    kind = _kind_of_object(found)
    if kind is None and callable(found) and not inspect.isclass(found):
        kind = _kind_of_function(found)
    if kind is None:
        raise UsageError(
            f"{reference} is a {type(found).__name__}; it must be {WANTED}; `--kind loss` says what it is"
        )
    return kind


def _kind_of_object(found: T) -> Kind | None:
    if _tables(found):
        return "table"
    kinds: tuple[tuple[type, Kind], ...] = (
        (Method, "method"),
        (nn.Module, "model"),
        (Dataset, "dataset"),
        (Split, "split"),
    )
    for kind, name in kinds:
        if isinstance(found, kind) or (inspect.isclass(found) and issubclass(found, kind)):
            return name
    return None


def _tables(found: T) -> bool:
    """Return whether an object is a table, or a list or dictionary of tables."""
    several = found.values() if isinstance(found, Mapping) else found
    listed = list(several) if isinstance(several, list | tuple | ValuesView) else [found]
    return bool(listed) and all(isinstance(one, Item) for one in listed)


def _kind_of_function(found: T) -> Kind | None:
    """Return the kind that a function's decorator, its annotation or the names of its parameters say."""
    if not inspect.isfunction(found):
        return None
    for kind in MARKED:
        if mark_of(found, kind, None) is not None:
            return kind
    inner = inspect.unwrap(found)
    returns = getattr(inner, "__annotations__", {}).get("return", "")
    text = returns if isinstance(returns, str) else str(getattr(returns, "__name__", returns))
    word = re.split(r"[\W]+", text.strip("'\"]"))[-1]
    return RETURNED.get(word) or _kind_by_parameters(list(inspect.signature(inner).parameters))


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

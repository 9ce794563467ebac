"""Recognise an object by what it is, such as a method, a network or a metric, and check it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from raffed.config.federation import SELECTIONS
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
from raffed.models import MODELS
from raffed.models.catalogue import model_name
from raffed.models.net import Net
from raffed.own.gate import entry_points
from raffed.own.names import mark_of
from raffed.own.resolve import load
from raffed.tables.items import Item
from raffed.testing.contract import Findings, Kind, is_code
from raffed.testing.datasets import check_dataset, check_split
from raffed.testing.functions import check_loss, check_metric, check_schedule, check_selection
from raffed.testing.methods import check_method
from raffed.testing.models import check_model
from raffed.testing.tables import check_table

T = TypeVar("T")


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

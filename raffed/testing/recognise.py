"""Recognise an object by what it is, a method, network, data set or split, and check it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.references.resolve import load
from raffed.testing.factories import is_code
from raffed.testing.findings import Findings, Kind

T = TypeVar("T")
RETURNED: dict[str, Kind] = {"Method": "method", "Module": "model", "Net": "model", "Dataset": "dataset"}
RETURNED["Split"] = "split"
WANTED = "a function that returns a Method, a network (nn.Module), a Dataset, or a Split"


def check(reference: str, args: Mapping[str, Value] | None = None) -> Findings:
    """Check what a reference or a name stands for.

    Args:
        reference: A reference such as "mylab.methods:myprox", or a name of a method, network, data set or
            split.
        args: Arguments of a method or a network.

    Returns:
        One outcome for each check of its kind.

    Raises:
        UsageError: There is nothing of this name, or it is none of the four kinds.

    Example:
        >>> check("fedprox").kind
        'method'
    """
    kind = _kind_of_code(reference) if is_code(reference) else _kind_of_name(reference)
    if args and kind == "dataset":
        raise UsageError(
            f"{reference} is a {kind}, which takes no arguments here; leave out {', '.join(args)}"
        )
    if kind == "method":
        from raffed.testing.methods import check_method

        return check_method(reference, args)
    if kind == "model":
        from raffed.testing.models import check_model

        return check_model(reference, args)
    if kind == "dataset":
        from raffed.testing.datasets import check_dataset

        return check_dataset(reference)
    from raffed.testing.splits import check_split

    return check_split(reference, args=args)


def _kind_of_name(text: str) -> Kind:
    """Return the kind of a name that raffed or an installed package gives."""
    from raffed.data.catalogue import DATASETS
    from raffed.data.splits import parse_split
    from raffed.methods import METHODS
    from raffed.models import MODELS
    from raffed.references.names import entry_points

    low = text.strip().lower()
    if low in METHODS or text in entry_points("raffed.methods"):
        return "method"
    if low in MODELS:
        return "model"
    if low in DATASETS:
        return "dataset"
    try:
        parse_split(text)
    except UsageError as error:
        raise UsageError(
            f"{text!r} is neither a reference (package.module:name, ./file.py:name) nor the name of a "
            f"method, network, data set or split; `raffed methods` and its like list the names"
        ) from error
    return "split"


def _kind_of_code(reference: str) -> Kind:
    """Return the kind of what a reference names, from its class or from what it says that it returns."""
    found = load(reference)
    kind = _kind_of_object(found)
    if kind is None and callable(found) and not inspect.isclass(found):
        kind = _kind_of_function(found)
    if kind is None:
        raise UsageError(f"{reference} is a {type(found).__name__}; it must be {WANTED}")
    return kind


def _kind_of_object(found: T) -> Kind | None:
    from torch import nn

    from raffed.core.method import Method
    from raffed.data.dataset import Dataset
    from raffed.data.split import Split

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


def _kind_of_function(found: T) -> Kind | None:
    """Return the kind that a function's annotation names; without one, the kind of what it returns."""
    inner = inspect.unwrap(found) if inspect.isfunction(found) else found
    returns = getattr(inner, "__annotations__", {}).get("return", "")
    word = str(getattr(returns, "__name__", returns)).rpartition(".")[2].strip("'\"")
    if word in RETURNED:
        return RETURNED[word]
    known = inspect.signature(inner).parameters if callable(inner) else {}
    if "labels" in known and {"rng", "clients", "owners"} & set(known):
        return "split"
    if {"in_shape", "num_classes"} & set(known):
        return "model"
    return None


__all__ = ["check"]

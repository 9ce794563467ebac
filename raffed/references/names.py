"""Names in a configuration that may stand for the user's own code: a reference, an object, or an entry point.

A configuration stores text only. `as_name` turns an object that was given in Python into its reference, and
`reference_of` says which code a text stands for.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from raffed.errors import UnknownNameError, UsageError
from raffed.references.naming import reference_to
from raffed.references.resolve import is_reference

T = TypeVar("T")


class EntryPoint(NamedTuple):
    """A short name that an installed package gives to its own code.

    Attributes:
        name: The name, in small letters.
        reference: The reference behind it, such as "mylab.methods:myprox".
        package: The installed distribution and its version, such as "mylab 0.1".
    """

    name: str
    reference: str
    package: str


def as_name(value: T) -> T | str:
    """Return what a configuration stores for a name: the text as typed, or the reference to an object.

    Args:
        value: A text, or a function or class at the top level of a module, a script or a notebook. Anything
            else that no reference could name and that cannot be called is returned as it is, so that the
            check of the field reports its type.

    Raises:
        UsageError: No other process could find the function or class; see `reference_to`.
    """
    return reference_to(value) if callable(value) else value


@functools.cache
def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Return the short names that installed packages register in a group. Nothing of theirs is imported.

    Args:
        group: "raffed.methods", "raffed.models", "raffed.datasets" or "raffed.splits".

    Returns:
        Name → entry point, sorted by name.
    """
    found = {}
    for one in importlib.metadata.entry_points(group=group):
        package = f"{one.dist.name} {one.dist.version}" if one.dist else "an unknown package"
        found[one.name.lower()] = EntryPoint(one.name.lower(), f"{one.module}:{one.attr}", package)
    return dict(sorted(found.items()))


def reference_of(text: str, group: str, known: Collection[str]) -> str | None:
    """Return the reference of the user's code that a name stands for, or None if it is raffed's own.

    Args:
        text: A name as a configuration stores it.
        group: The group of entry points.
        known: The names that raffed itself has. They are never taken over by an entry point.
    """
    if text in known:
        return None
    registered = entry_points(group).get(text)
    if registered is not None:
        return registered.reference
    return text if is_reference(text) else None


def spelled(kind: str, text: str, group: str, known: Collection[str]) -> str:
    """Return the one spelling of a name: small letters, unless it is a reference.

    Args:
        kind: What the name should be a name of, such as "method", for messages.
        text: What was typed.
        group: The group of entry points.
        known: The names that raffed itself has.

    Raises:
        UnknownNameError: It is none of raffed's names, no entry point and no reference. The message lists
            the nearest of both.
        UsageError: It looks like a reference and is not one.
    """
    text = text.strip()
    names = {*known, *entry_points(group)}
    if text.lower() in names:
        return text.lower()
    if is_reference(text):
        return text
    if ":" in text or text.endswith(".py"):
        raise UsageError(
            f"{kind} {text!r} is not a reference; write ./file.py:NAME or package.module:NAME, NAME being "
            f"that of the {kind} there"
        )
    raise UnknownNameError(kind, text, names)


__all__ = ["EntryPoint", "as_name", "entry_points", "reference_of", "spelled"]

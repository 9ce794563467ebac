"""Names in a configuration that may stand for the user's own code: a reference, an object, or an entry point.

A configuration stores text only. `as_name` turns an object that was given in Python into its reference, and
`reference_of` says which code a text stands for.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from raffed.errors import UnknownNameError, UsageError
from raffed.own.entry_points import EntryPoint, entry_points
from raffed.own.gate import allow, say
from raffed.own.located import is_reference
from raffed.own.naming import reference_to

T = TypeVar("T")


def as_name(value: T) -> T | str:
    """Return what a configuration stores for a name: the text as typed, or the reference to an object.

    Args:
        value: A text, or a function or class at the top level of a module, a script or a notebook. Anything
            else that no reference could name and that cannot be called is returned as it is, so that the
            check of the field reports its type. What is given is the user's word for that code.

    Raises:
        UsageError: No other process could find the function or class; see `reference_to`.
    """
    if callable(value):
        reference = reference_to(value)
        allow(reference)
        return reference
    if isinstance(value, str):
        say(value)
    return value


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

"""Names in a configuration that may stand for the user's own code: a reference, an object, or an entry point.

A configuration stores text only. `as_name` turns an object that was given in Python into its reference, and
`reference_of` says which code a text stands for.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from raffed.errors import UnknownNameError, UsageError
from raffed.own.gate import allow, entry_points, say
from raffed.own.located import is_reference
from raffed.own.resolve import load, stored_module
from raffed.own.user_code import may_be_called, place_of

# From an object to the reference that names it, as other processes can resolve it.


def reference_to(value: object) -> str:
    """Return the reference to a function or class.

    Args:
        value: A function or class at the top level of a module, a script or a notebook.

    Returns:
        A text that `load` accepts, in this process and in every other.

    Raises:
        UsageError: No other process could find the object: it is a lambda, it was defined inside a function,
            or it is an object that is neither a function nor a class.
    """
    value = inspect.unwrap(value) if inspect.isfunction(value) else value
    name = getattr(value, "__qualname__", None)
    home = getattr(value, "__module__", None)
    if not isinstance(name, str) or not isinstance(home, str) or inspect.ismodule(value):
        raise UsageError(
            f"{value!r} is a {type(value).__name__}; give a function or a class that other processes can "
            f"import, or its reference as a text (package.module:name)"
        )
    if "<lambda>" in name:
        raise UsageError(
            f"a lambda ({place_of(value)}) has no name by which other processes could import it; write it "
            "as a function with `def` at the top level of a file or cell"
        )
    if "<locals>" in name:
        raise UsageError(
            f"{name.replace('.<locals>', '')} ({place_of(value)}) is defined inside a function, so no other "
            f"process can import it; define it at the top level and pass what it needs as arguments"
        )
    return f"{stored_module(home)}:{name}"


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


# Functions of the user's own that raffed calls itself: splits, losses and metrics by reference.


F = TypeVar("F")
M = TypeVar("M")


@dataclass(frozen=True)
class OwnFunction:
    """A function outside raffed that a configuration names.

    Attributes:
        kind: What it is, such as "split"; also the name of its decorator.
        name: The name in the configuration: an entry point or a reference.
        reference: Where it is.
    """

    kind: str
    name: str
    reference: str

    def load(self) -> types.FunctionType:
        """Return the function.

        Raises:
            UsageError: There is none, or it may not be called. A name may come from a file that a stranger
                wrote, so only a marked function or one that the user wrote is ever called.
        """
        function = load(self.reference)
        if not isinstance(function, types.FunctionType):
            kind = "function" if inspect.isroutine(function) else type(function).__name__
            raise UsageError(f"{self.kind} {self.name!r} is a {kind}; it must be a function of yours")
        if mark_of(function, self.kind, None) is None and not may_be_called(function):
            raise UsageError(
                f"{self.kind} {self.name!r} is a function of an installed package that is not marked with "
                f"@raffed.{self.kind}; write a function of yours that calls it"
            )
        return function

    @property
    def where(self) -> str:
        """The file and line at which the function begins."""
        return place_of(self.load())


def own_function(kind: str, name: str, group: str) -> OwnFunction:
    """Return what a name in a configuration stands for.

    Args:
        kind: What it should be, such as "split".
        name: The name as the configuration stores it.
        group: The group of entry points.

    Raises:
        UsageError: It is neither an entry point nor a reference.
    """
    reference = reference_of(name, group, ())
    if reference is None:
        spelled(kind, name, group, ())
        raise UnknownNameError(kind, name, entry_points(group))
    return OwnFunction(kind, name, reference)


def marked(function: F, kind: str, mark: M) -> F:
    """Mark a function as a split, a loss or a metric, and return it."""
    setattr(function, f"__raffed_{kind}__", mark)
    return function


def mark_of(function: types.FunctionType, kind: str, usual: M) -> M:
    """Return what the decorator of a kind said about a function; `usual` without one."""
    mark: M = getattr(function, f"__raffed_{kind}__", usual)
    return mark

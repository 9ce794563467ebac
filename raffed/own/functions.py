"""Functions of the user's own that raffed calls itself: splits, losses and metrics by reference.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from raffed.errors import UnknownNameError, UsageError
from raffed.own.names import entry_points, reference_of, spelled
from raffed.own.resolve import load
from raffed.own.user_code import may_be_called

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
        found = load(self.reference)
        if not isinstance(found, types.FunctionType):
            kind = "function" if inspect.isroutine(found) else type(found).__name__
            raise UsageError(f"{self.kind} {self.name!r} is a {kind}; it must be a function of yours")
        if mark_of(found, self.kind, None) is None and not may_be_called(found):
            raise UsageError(
                f"{self.kind} {self.name!r} is a function of an installed package that is not marked with "
                f"@raffed.{self.kind}; write a function of yours that calls it"
            )
        return found

    @property
    def where(self) -> str:
        """The file and line at which the function begins."""
        code = inspect.unwrap(self.load()).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def own_function(kind: str, name: str, group: str, known: Collection[str] = ()) -> OwnFunction:
    """Return what a name in a configuration stands for.

    Args:
        kind: What it should be, such as "split".
        name: The name as the configuration stores it.
        group: The group of entry points.
        known: The names that raffed itself has.

    Raises:
        UsageError: It is neither an entry point nor a reference.
    """
    reference = reference_of(name, group, known)
    if reference is None:
        spelled(kind, name, group, known)
        raise UnknownNameError(kind, name, {*known, *entry_points(group)})
    return OwnFunction(kind, name, reference)


def marked(function: F, kind: str, mark: M) -> F:
    """Mark a function as a split, a loss or a metric, and return it."""
    setattr(function, f"__raffed_{kind}__", mark)
    return function


def mark_of(function: types.FunctionType, kind: str, usual: M) -> M:
    """Return what the decorator of a kind said about a function; `usual` without one."""
    found: M = getattr(function, f"__raffed_{kind}__", usual)
    return found


__all__ = ["OwnFunction", "mark_of", "marked", "own_function"]

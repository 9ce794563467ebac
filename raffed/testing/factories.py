"""From what a person gives to the object that is checked: a reference, or the object itself."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from raffed.errors import UsageError
from raffed.own.located import is_file
from raffed.own.names import reference_to
from raffed.own.resolve import is_reference, load

T = TypeVar("T")


def is_code(text: str) -> bool:
    """Return whether a text refers to Python code here: a file, or a module that can be imported.

    "npz:arrays.npz" has the form of a reference, and names a file of data.
    """
    if not is_reference(text):
        return False
    home = text.rpartition(":")[0]
    return is_file(home) or _importable(home.partition(".")[0])


def _importable(module: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None or _here(module)
    return False


def _here(module: str) -> bool:
    return Path(module).is_dir() or Path(f"{module}.py").is_file()


def resolved(text: str) -> Callable[..., T]:
    """Return the function or class that a reference names.

    Raises:
        UsageError: The text is not a reference, or the object cannot be called.
        UserCodeError: The user's file raised an error while it was imported.
    """
    found = load(text) if is_reference(text) else None
    if found is None:
        raise UsageError(
            f"{text!r} is neither a known name nor a reference; write package.module:name or ./file.py:name"
        )
    if not callable(found):
        raise UsageError(f"{text} is a {type(found).__name__}; it must be a function or a class")
    made: Callable[..., T] = found
    return made


def typed(thing: str | Callable[..., T]) -> str:
    """Return what a configuration stores for a function or its name.

    Raises:
        UsageError: No other process could find the function.
    """
    return thing if isinstance(thing, str) else reference_to(thing)


def named(thing: T) -> str:
    """Return what messages call an object: its reference, its name, or its type."""
    if isinstance(thing, str):
        return thing
    return str(getattr(thing, "__name__", "") or getattr(thing, "name", "") or type(thing).__name__)


__all__ = ["is_code", "named", "resolved", "typed"]

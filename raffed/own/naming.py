"""From an object to the reference that names it, as other processes can resolve it.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import inspect

from raffed.errors import UsageError
from raffed.own.resolve import stored_module


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
            f"a lambda ({_where(value)}) has no name by which other processes could import it; write it as a "
            f"function with `def` at the top level of a file or cell"
        )
    if "<locals>" in name:
        raise UsageError(
            f"{name.replace('.<locals>', '')} ({_where(value)}) is defined inside a function, so no other "
            f"process can import it; define it at the top level and pass what it needs as arguments"
        )
    return f"{stored_module(home)}:{name}"


def _where(value: object) -> str:
    code = getattr(value, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else type(value).__name__


__all__ = ["reference_to"]

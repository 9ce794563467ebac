"""Where a class or a function of the user's own begins, for messages. It imports neither torch nor Ray."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def place_of(code: Callable[P, T]) -> str:
    """Return `file:line` at which a class or a function begins; its module and name if it has no file."""
    found = inspect.unwrap(code)
    if isinstance(found, types.FunctionType):
        return f"{found.__code__.co_filename}:{found.__code__.co_firstlineno}"
    try:
        kind = found if isinstance(found, type) else type(found)
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return f"{found.__module__}.{getattr(found, '__qualname__', '')}".strip(".")


__all__ = ["place_of"]

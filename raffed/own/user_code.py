"""Errors in the user's own code: which line of it raised one, so that a message can begin with that line.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import errno
import inspect
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raffed.errors import RaffedError

# Where a class or a function of the user's own begins, for messages.


def place_of(code: Any) -> str:
    """Return `file:line` at which a class or a function begins; its module and name if it has no file."""
    unwrapped = inspect.unwrap(code)
    if isinstance(unwrapped, types.FunctionType):
        return f"{unwrapped.__code__.co_filename}:{unwrapped.__code__.co_firstlineno}"
    try:
        kind = unwrapped if isinstance(unwrapped, type) else type(unwrapped)
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return f"{unwrapped.__module__}.{getattr(unwrapped, '__qualname__', '')}".strip(".")


# Packages of raffed that lie beside it in a checkout
BESIDE = ("analysis", "cluster", "reproductions", "tune_spaces")


class UserCodeError(RaffedError):
    """The user's own code raised an error. The message begins with the file and line in that code."""


@contextmanager
def user_errors(home: str = "") -> Iterator[None]:
    """Report an error that the user's own code raises inside the body by the user's file and line.

    Errors of raffed's own code pass, and so do a lack of memory and a full disk, which the caller may remedy.

    Args:
        home: What the message names if no frame is the user's, such as the reference that was called. Without
            it, such an error passes as it is.

    Raises:
        UserCodeError: A frame of the user's code was active when the error was raised, or `home` is given.
    """
    try:
        yield
    except (RaffedError, MemoryError):
        raise
    except Exception as error:
        where = where_raised(error, home)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not where or full or "out of memory" in str(error):
            raise
        what = str(error).strip().partition("\n")[0]
        raise UserCodeError(f"{where}: {type(error).__name__}: {what}") from error


def where_raised(error: BaseException, home: str) -> str:
    """Return `file:line` of the innermost frame in code that is not raffed's, an installed library's or
    Python's own; `home` if there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    place, trace = home, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_user_code(file):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def is_user_code(file: str) -> bool:
    """Return whether a file of a traceback belongs to the user: not to raffed, a library or Python."""
    if file.startswith("<"):
        return file.startswith("<ipython")
    path = Path(file).absolute()
    if "site-packages" in path.parts or "dist-packages" in path.parts:
        return False
    package, python = Path(__file__).absolute().parents[1], Path(os.__file__).absolute().parent
    beside = {package.parent / name for name in BESIDE}
    return not {package, python, *beside} & set(path.parents)


def may_be_called(function: types.FunctionType, *makes: str) -> bool:
    """Return whether a function may be called because a configuration names it.

    A configuration may come from a stranger, who could name any function of Python or of a library, such as
    `os:system`. So a function is called only if its annotation says that it makes what is needed, or if the
    user wrote it.

    Args:
        function: The function that the reference names.
        *makes: Names of the classes of what it may return, such as "Method".
    """
    inner = inspect.unwrap(function)
    returns = str(getattr(inner, "__annotations__", {}).get("return", ""))
    return returns.rpartition(".")[2].rstrip("'>") in makes or is_user_code(inner.__code__.co_filename)

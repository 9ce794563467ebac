"""Errors in the user's own code, and objects of a wrong type where a user puts them.

A message begins with the line of the user's code that raised an error. The type of an object is checked where
a user puts it, such as a term into a method. This module imports neither torch nor Ray.
"""

from __future__ import annotations

import errno
import inspect
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from raffed.errors import RaffedError, UsageError

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

    So is `sys.exit()`, which would end the command as if all was done. Errors of raffed's own code pass, and
    so do a lack of memory and a full disk, which the caller may remedy.

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
    except (Exception, SystemExit) as error:
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


T = TypeVar("T")


def check_slot(owner: str, slot: str, value: T, kind: type, *, optional: bool = False) -> None:
    """Check that a slot holds an object of a class.

    Args:
        owner: What messages call the object with the slot, such as the name of a method.
        slot: Name of the slot.
        value: What is in it.
        kind: The class of what belongs there.
        optional: Whether None is allowed, too.

    Raises:
        UsageError: Something else is in the slot.
    """
    if isinstance(value, kind) or (optional and value is None):
        return
    wanted = f"{with_article(kind.__name__)}{' or None' if optional else ''}"
    raise UsageError(f"{owner}: {slot} is {described(value)}; it must be {wanted}")


def check_many(owner: str, slot: str, value: T, kind: type, *, some: bool = False) -> None:
    """Check that a slot holds a tuple or a list of objects of a class.

    Args:
        owner: What messages call the object with the slot.
        slot: Name of the slot.
        value: What is in it.
        kind: The class of what belongs there.
        some: Whether there must be at least one.

    Raises:
        UsageError: Something else is in the slot, or nothing although there must be something.
    """
    if not isinstance(value, tuple | list):
        remedy = f"; write {slot}=(…,), with the comma" if isinstance(value, kind) else ""
        raise UsageError(
            f"{owner}: {slot} is {described(value)}; it must be a tuple of {kind.__name__}{remedy}"
        )
    if some and not value:
        raise UsageError(f"{owner}: {slot} is empty; it must have at least one {kind.__name__}")
    for number, member in enumerate(value):
        check_slot(owner, f"{slot}[{number}]", member, kind)


def check_pairs(owner: str, slot: str, value: T) -> None:
    """Check that a slot holds a tuple of pairs of a name and a value.

    Raises:
        UsageError: Something else is in the slot.
    """
    pairs = value if isinstance(value, tuple) else (value,)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise UsageError(
                f"{owner}: {slot} has {described(pair)} in it; it must be a tuple of pairs, as in "
                f'{slot}=(("name", 1.0),)'
            )


def described(value: T) -> str:
    """Return what a value is, for a message. Of numbers and words it is the value itself."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}, not an object of it (write {value.__name__}(…))"
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """Return a name with its article, such as "an int"."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

"""The check of an object's type where a user puts it, such as a term into a method. It imports no torch."""

from __future__ import annotations

from typing import TypeVar

from raffed.errors import UsageError

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

"""Fields that store a name and accept what it stands for: a method, a network, a data set, a split.

A configuration stores text only. In Python a field may also be given the function or class itself, or
something that knows how it is stored. When the program runs, `Name` is `str`, so that a field declares a
text. Type checkers see a descriptor: what may be given is wider than what is read, which is always a text.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from raffed.config.validation import Value

T = TypeVar("T")


class Importable(Protocol):
    """A function or class, which other processes can import by its module and name."""

    __module__: str
    __qualname__: str


class StoredData(Protocol):
    """A data set that knows the text by which it is found."""

    def reference(self) -> str: ...


class StoredSplit(Protocol):
    """A split that knows its text and its arguments."""

    def stored(self) -> tuple[str, Mapping[str, Value]]: ...


class NameHolder(Protocol):
    """Whatever has such a field."""


if TYPE_CHECKING:

    class Name(Generic[T]):
        """A field that is given a text or a `T`, and read as a text."""

        def __init__(self, default: str) -> None: ...

        def __get__(self, instance: NameHolder | None, owner: type) -> str: ...

        def __set__(self, instance: NameHolder, value: str | T) -> None: ...

else:

    class Name:
        """At run time: `Name[T]` is the type `str`, and `Name(text)` is the text."""

        def __class_getitem__(cls, _: T) -> type[str]:
            return str

        def __new__(cls, default: str) -> str:
            return default


def keep(section: NameHolder, **values: str | dict[str, Value]) -> None:
    """Set fields of a frozen section while it is made."""
    for name, value in values.items():
        object.__setattr__(section, name, value)

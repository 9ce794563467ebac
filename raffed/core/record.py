"""Immutable records of tensors that torch.func can stack.

They are the base of everything that ingredients remember or send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from torch.utils import _pytree as pytree
from typing_extensions import dataclass_transform

from raffed.own.resolve import stored_module

REGISTRY: dict[str, type[Record]] = {}
"""Every record class by its stored name.

A checkpoint can only refer to these classes when it is read. Nothing is ever unpickled.
"""


@dataclass_transform(frozen_default=True)
class Record:
    """Base class of records. Each subclass is a frozen dataclass and a pytree node.

    So `vmap` and `grad` see the tensors inside a record.

    A subclass has a stored name, by which a checkpoint refers to it. For raffed's own classes this is the
    name of the class, or the name that it had when the first checkpoints were written, as in `class
    ClientState(Private, stored="Vault")`. So a class can be renamed without changing a file or a hash. For
    classes of other packages the stored name is `module:Class`, so that two packages can have a record of the
    same name. For classes of a file that was named by reference the module is the file as typed, such as
    `./prox.py:Class`, so that changed code can read its own records.

    Raises:
        TypeError: Another class is already stored under the name of a new subclass.
    """

    _compare: ClassVar[bool] = False  # off, since tensors have no single truth value; ingredients turn it on

    _names: ClassVar[tuple[str, ...]] = ()
    _stored: ClassVar[str] = ""

    def __init_subclass__(cls, stored: str = "") -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, eq=cls._compare)(cls)
        names = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]

        def flatten(value: Record) -> tuple[list[pytree.PyTree], None]:
            return [getattr(value, name) for name in names], None

        def unflatten(children: Iterable[pytree.PyTree], _: None) -> Record:
            made = object.__new__(cls)  # without __init__, because inside vmap the leaves may be placeholders
            for name, child in zip(names, children, strict=True):
                object.__setattr__(made, name, child)
            return made

        cls._names = names
        cls._stored = stored or _name_in_files(cls)
        known = REGISTRY.get(cls._stored)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__} would be stored as {cls._stored!r}, as "
                f"{known.__module__}.{known.__qualname__} is; rename one of them"
            )
        pytree.register_pytree_node(
            cls, flatten, unflatten, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}"
        )
        REGISTRY[cls._stored] = cls

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def stored_name(kind: type[Record]) -> str:
    """Return the name by which checkpoints refer to a record class."""
    return kind._stored


def fields_of(value: Record) -> dict[str, Any]:
    """Return the fields of a record by name, in the order of declaration."""
    return {name: getattr(value, name) for name in value._names}


def _name_in_files(cls: type[Record]) -> str:
    own = cls.__module__.split(".")[0] == "raffed"
    return cls.__qualname__ if own else f"{stored_module(cls.__module__)}:{cls.__qualname__}"

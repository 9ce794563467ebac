"""Immutable records of tensors that torch.func can stack: the base of everything that ingredients remember or send."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from torch.utils import _pytree as pytree
from typing_extensions import Self, dataclass_transform

REGISTRY: dict[str, type[Frozen]] = {}
"""Every record class by its name: what a checkpoint may name when it is read (nothing is ever unpickled)."""


@dataclass_transform(frozen_default=True)
class Frozen:
    """Each subclass is a frozen dataclass and a pytree node, so `vmap` and `grad` see the tensors inside."""

    _compare: ClassVar[bool] = False  # tensors have no single truth value; recipes (Ingredient) turn this on

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=cls._compare)(cls)
        names = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]

        def flatten(value: Any) -> tuple[list[Any], None]:
            return [getattr(value, name) for name in names], None

        def unflatten(children: Any, _: None) -> Any:
            made = object.__new__(cls)  # not __init__: inside vmap the leaves may be placeholders
            for name, child in zip(names, children, strict=True):
                object.__setattr__(made, name, child)
            return made

        cls._names = names
        known = REGISTRY.get(cls.__qualname__)
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: {known.__module__} has a record of this name; rename one")
        pytree.register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"raffed.{cls.__qualname__}")
        REGISTRY[cls.__qualname__] = cls

    def but(self, **changes: Any) -> Self:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def fields_of(value: Frozen) -> dict[str, Any]:
    """Field name → value, in the order of declaration."""
    return {name: getattr(value, name) for name in value._names}

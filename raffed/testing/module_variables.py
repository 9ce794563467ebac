"""The module variables of a method's code: what it must not keep anything in.

Another process, such as a client actor or a resumed run, imports the module anew and finds these variables as
they were written there. The checks imitate this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import Tensor
from torch.utils import _pytree as pytree

PLAIN = (bool, int, float, str, dict, list, set, Tensor)


class ModuleVariables:
    """The values of module variables as they were at first.

    Args:
        modules: The modules. Functions, classes and other objects in them are left alone.
    """

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._known: dict[tuple[ModuleType, str], pytree.PyTree] = {
            (module, name): _copied(value)
            for module in modules
            for name, value in vars(module).items()
            if not name.startswith("__") and isinstance(value, PLAIN)
        }

    @contextmanager
    def as_in_another_process(self) -> Iterator[None]:
        """Inside the block the variables have these values again; after it, those of before the block."""
        kept = {(module, name): getattr(module, name) for module, name in self._known}
        self._set({place: _copied(value) for place, value in self._known.items()})
        try:
            yield
        finally:
            self._set(kept)

    def advice(self) -> str:
        """Return what to do about a variable that has changed since then, or "" if none has."""
        for (module, name), value in self._known.items():
            if not _equal(getattr(module, name, None), value):
                file = Path(module.__file__ or module.__name__).name
                return (
                    f"{file} keeps something in its variable {name}, which other processes do not see; put "
                    f"what a client remembers into a Private record, and what it tells the server into a Wire"
                )
        return ""

    @staticmethod
    def _set(values: dict[tuple[ModuleType, str], pytree.PyTree]) -> None:
        for (module, name), value in values.items():
            setattr(module, name, value)


def _copied(value: pytree.PyTree) -> pytree.PyTree:
    if isinstance(value, set):
        return set(value)
    return pytree.tree_map_only(Tensor, lambda one: one.detach().clone(), value)


def _equal(one: pytree.PyTree, other: pytree.PyTree) -> bool:
    left, right = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return left[1] == right[1] and all(_same(a, b) for a, b in zip(left[0], right[0], strict=True))


def _same(one: pytree.PyTree, other: pytree.PyTree) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.numpy(force=True).tobytes() == other.numpy(force=True).tobytes()
    return type(one) is type(other) and bool(one == other)


__all__ = ["ModuleVariables"]

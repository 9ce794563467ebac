"""The source of functions and classes that were defined in a notebook cell or at the prompt.

Another process cannot import a notebook. So the object's source is collected together with everything at the
top level of the notebook that it uses: imports, constants, and other functions and classes. The result is a
small module, which a run keeps in its folder.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import types
from collections.abc import Iterator, Mapping, Sequence

from raffed.errors import UsageError

Definition = types.FunctionType | type


def module_source(values: Sequence[Definition], names: Mapping[str, object]) -> str:
    """Return the source of a module that defines some objects of a notebook and all that they use.

    Args:
        values: Functions and classes that the notebook defined.
        names: The notebook's variables, which are those of `__main__`.

    Returns:
        Python source: imports, then constants, then definitions in an order in which they can be executed.

    Raises:
        UsageError: A definition uses a live object, such as a data frame or an open file, that cannot be
            written as source. The message names the variable.
    """
    collected = _Collected(names)
    for value in values:
        collected.add(value.__name__, value, value.__name__)
    parts = [
        "from __future__ import annotations\n" if collected.future else "",
        "".join(f"{line}\n" for line in dict.fromkeys(collected.imports)),
        "".join(f"{name} = {text}\n" for name, text in collected.constants.items()),
        *collected.definitions.values(),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


class _Collected:
    """What has been found so far, as source."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names
        self.imports: list[str] = []
        self.constants: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self._begun: set[str] = set()
        self.future = False

    def add(self, name: str, value: object, user: str) -> None:
        """Add what `name` stands for, and first what it uses.

        `user` is the definition that uses it, for messages.
        """
        if name in self._begun:
            return
        self._begun.add(name)
        if isinstance(value, types.ModuleType):
            self.imports.append(_import_line(value, name))
        elif isinstance(value, types.FunctionType | type) and value.__module__ == "__main__":
            self._add_definition(name, value)
        elif not _is_constant(value) and (found := _import_home(value, name)) is not None:
            home, own = found
            self.imports.append(f"from {home} import {own}" + (f" as {name}" if own != name else ""))
        elif (text := _as_literal(value)) is not None:
            self.constants[name] = text
        else:
            raise UsageError(
                f"{user} uses {name}, a {type(value).__name__} that lives in this notebook only, so no other "
                f"process can have it; make it inside the function, or pass it as an argument"
            )

    def _add_definition(self, name: str, value: Definition) -> None:
        source = _source_of(value)
        self.future = self.future or any(isinstance(one, str) for one in _annotations(value))
        for used in _names_used(source):
            if used in self._names and not hasattr(builtins, used):
                self.add(used, self._names[used], name)
        self.definitions[name] = source
        if name != value.__name__:
            self.definitions[f"{name} ="] = f"{name} = {value.__name__}\n"


def _source_of(value: Definition) -> str:
    """Return the source of a function or class. Python itself cannot find that of a notebook's class."""
    if isinstance(value, type) and (found := _class_in_cells(value.__name__)) is not None:
        return found
    try:
        return inspect.getsource(value).rstrip("\n") + "\n"
    except (OSError, TypeError) as error:
        raise UsageError(
            f"the source of {value.__name__} is not known ({error}); define it in a notebook cell "
            f"or in a file"
        ) from error


def _class_in_cells(name: str) -> str | None:
    """Return the source of the class that the newest notebook cell defines under this name, if one does."""
    cells = [file for file in linecache.cache if "ipykernel" in file or file.startswith("<ipython-input")]
    for file in reversed(cells):
        text = "".join(linecache.getlines(file))
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a shell command or a magic
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"
    return None


def _annotations(value: Definition) -> Iterator[object]:
    yield from getattr(value, "__annotations__", {}).values()
    for member in vars(value).values() if isinstance(value, type) else ():
        yield from getattr(member, "__annotations__", {}).values()


def _names_used(source: str) -> list[str]:
    """Return the names that a definition reads, in the order of their first use, its own name left out."""
    tree = ast.parse(source)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    texts = [
        one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    quoted = [text for text in texts if text.isidentifier()]  # annotations that are written as strings
    return [name for name in dict.fromkeys([*found, *quoted]) if name not in own]


def _import_line(module: types.ModuleType, name: str) -> str:
    full = module.__name__
    return f"import {full}" if full == name else f"import {full} as {name}"


def _import_home(value: object, name: str) -> tuple[str, str] | None:
    """Return (module, name there) so that `from module import name` gives the object back, or None."""
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(home, str) and isinstance(own, str) and own.isidentifier() and _holds(home, own, value):
        return home, own
    others = [one for one in list(sys.modules) if _holds(one, name, value)]
    return (min(others, key=lambda one: (one.count("."), len(one), one)), name) if others else None


def _holds(module: str, name: str, value: object) -> bool:
    found = sys.modules.get(module)
    return module != "__main__" and found is not None and vars(found).get(name, found) is value


def _is_constant(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


def _as_literal(value: object) -> str | None:
    """Return the value as source, or None if it is not a constant or a collection of constants."""
    text = repr(value)
    if len(text) > 10_000:
        return None
    try:
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


__all__ = ["module_source"]

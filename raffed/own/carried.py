"""The code of a run's references on its way to other processes: where it lies, and the files themselves.

A process that unpickles a `RunCode` can resolve the run's references from then on. It imports them from the
place where they were found, if the same files lie there; otherwise, as on another node of a cluster, from a
private folder of this user in which the files are written.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import os
import stat
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from raffed.errors import UsageError
from raffed.own import gate
from raffed.own.located import NOTEBOOK, CodeLocation, Sources, is_file
from raffed.own.resolve import admit, install, main_file, sources_of

# The source of functions and classes that were defined in a notebook cell or at the prompt.
#
# Another process cannot import a notebook. So the object's source is collected together with everything at
# the top level of the notebook that it uses: imports, constants, and other functions and classes. The
# result is a small module, which a run keeps in its folder.


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
        "from __future__ import annotations\n",
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


NOTEBOOK_FILE: Final = "notebook.py"
_OWN: set[str] = set()  # homes of code that was packed in this process, which therefore needs no other


@dataclass(frozen=True)
class CarriedCode:
    """The code of one reference.

    Attributes:
        role: What the reference is in the run, such as "method".
        sources: The reference, its package, its place and the hashes of its files.
        contents: Path of each file, relative to the place's root → its bytes. The files of all references
            with the same root are among them, since a package can be imported from one folder only.
    """

    role: str
    sources: Sources
    contents: Mapping[str, bytes]

    def settle(self) -> None:
        """Make the reference resolvable in this process, and by the same code."""
        place, text = self.sources.place, self.sources.reference
        if place.home in _OWN:
            return
        if not gate.is_said(text):  # then only these files are importable
            install(self._at(self._root()), text)
            admit(text)
            return
        if is_file(place.home) or place.home == NOTEBOOK:
            install(self._at(self._root()))
            return
        found = _importable_from(place.home)
        if found is not None and self._lies_in(found):
            return
        root = str(self._root())
        install(self._at(Path(root)))
        if found is not None:  # other code of this name would be found first
            sys.path.insert(0, root)

    def _at(self, root: Path) -> CodeLocation:
        place = self.sources.place
        file = root / Path(place.file).relative_to(place.root)
        return CodeLocation(place.home, str(file), str(root))

    def _root(self) -> Path:
        """Return a folder that holds exactly these files: the original one, or a private copy."""
        original = Path(self.sources.place.root)
        return original if original.is_absolute() and self._lies_in(original) else unpacked(self.contents)

    def _lies_in(self, root: Path) -> bool:
        return all(_content(root / name) == data for name, data in self.contents.items())


class RunCode:
    """The code of all references of a run, installed in every process that unpickles it.

    Args:
        parts: The code of each reference.
    """

    def __init__(self, parts: tuple[CarriedCode, ...] = ()) -> None:
        self.parts = parts

    def __reduce__(
        self,
    ) -> tuple[
        Callable[[tuple[CarriedCode, ...], gate.Knowledge], RunCode],
        tuple[tuple[CarriedCode, ...], gate.Knowledge],
    ]:
        return _arrived, (self.parts, gate.state())


def _arrived(parts: tuple[CarriedCode, ...], known: gate.Knowledge) -> RunCode:
    gate.inherit(known)
    for one in parts:
        one.settle()
    return RunCode(parts)


def packed(references: Mapping[str, str]) -> RunCode:
    """Return the code of references that can be resolved in this process.

    Args:
        references: Role, such as "method" → reference.

    Raises:
        UsageError: A reference cannot be resolved, or its code has no source.
    """
    cells = {role: text for role, text in references.items() if defined_here(text)}
    from_cells = _from_cells(cells) if cells else {}
    parts = []
    for role, text in references.items():
        found = from_cells.get(role) or _from_files(role, text)
        _OWN.add(found.sources.place.home)
        parts.append(found)
    roots: dict[str, dict[str, bytes]] = {}
    for one in parts:
        roots.setdefault(one.sources.place.root, {}).update(one.contents)
    return RunCode(tuple(replace(one, contents=roots[one.sources.place.root]) for one in parts))


def defined_here(text: str) -> bool:
    """Return whether a reference names what this process's own notebook or prompt defines."""
    home, _, name = text.rpartition(":")
    main = sys.modules.get("__main__")
    return home == NOTEBOOK and main_file() is None and hasattr(main, name.partition(".")[0])


def _from_files(role: str, text: str) -> CarriedCode:
    sources = sources_of(text)
    root = Path(sources.place.root)
    return CarriedCode(role, sources, {name: (root / name).read_bytes() for name in sources.files})


def _from_cells(references: Mapping[str, str]) -> dict[str, CarriedCode]:
    """Return the code of functions and classes of this notebook, as one file that defines them all."""
    main = vars(sys.modules["__main__"])
    values = [main[text.rpartition(":")[2].partition(".")[0]] for text in references.values()]
    defined = [one for one in values if isinstance(one, types.FunctionType | type)]
    text = module_source(list(dict.fromkeys(defined)), main)
    data = text.encode()
    files = {NOTEBOOK_FILE: hashlib.sha256(data).hexdigest()}
    place = CodeLocation(NOTEBOOK, f"code/{NOTEBOOK_FILE}", "code")  # below the run's folder
    return {
        role: CarriedCode(role, Sources(name, "", files, place), {NOTEBOOK_FILE: data})
        for role, name in references.items()
    }


def unpacked(contents: Mapping[str, bytes]) -> Path:
    """Return a folder of this user that holds these files, written if it is not there yet.

    Nobody else can write there. Processes of one machine share it.

    Args:
        contents: Path relative to the folder → bytes.
    """
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + data for name, data in contents.items()))
    folder = _private_folder() / digest.hexdigest()[:32]
    if not all(_content(folder / name) == data for name, data in contents.items()):
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
        for name, data in contents.items():
            target = gate.within(part, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        try:
            part.rename(folder)
        except OSError:  # another process was first, or what lies there was changed
            return folder if all(_content(folder / n) == d for n, d in contents.items()) else part
    return folder


def _private_folder() -> Path:
    """Return a folder for temporary files that only this user can enter."""
    shared = Path(tempfile.gettempdir()) / f"raffed-code-{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    found = shared.lstat()
    safe = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return shared if safe else Path(tempfile.mkdtemp(prefix="raffed-code-"))


def _importable_from(home: str) -> Path | None:
    """Return the folder from which Python would import the top package of a module, or None."""
    top = home.partition(".")[0]
    for folder in map(Path, sys.path):
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return folder
    return None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None

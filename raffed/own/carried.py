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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from raffed.errors import UsageError
from raffed.own import gate
from raffed.own.located import NOTEBOOK, CodeLocation, Sources, is_file
from raffed.own.resolve import admit, install, main_file, sources_of

# The source of functions and classes that were defined in a notebook cell or at the prompt.
#
# Another process cannot import a notebook. So an object's source is collected together with everything at
# the top level of the notebook that it uses: imports, constants, and other functions and classes. The
# result is a small module, which a run keeps in its folder.


Definition = types.FunctionType | type


def module_source(values: Sequence[Definition], names: Mapping[str, object]) -> str:
    """Return the source of a module that defines some objects of a notebook and all that they use.

    Args:
        values: Functions and classes that the notebook defined.
        names: The notebook's variables, which are those of `__main__`.

    Returns:
        Python source: imports, constants and definitions in an order in which they can be executed.

    Raises:
        UsageError: A definition uses a live object, such as a data frame or an open file, that cannot be
            written as source. The message names the variable.
    """
    cells, parts, begun = _cells(), ["from __future__ import annotations"], set[str]()

    def add(name: str, user: str) -> None:
        """Add what a name stands for, and first what it uses. `user` is the definition that uses it."""
        if name in begun or name not in names or hasattr(builtins, name):
            return
        begun.add(name)
        value = names[name]
        source = _defined(name, value, cells)
        if source is not None:
            for used in _names_used(source):
                add(used, name)
        elif isinstance(value, Definition) and value.__module__ == "__main__":
            if value.__name__ == name or names.get(value.__name__) is not value:
                raise UsageError(
                    f"the source of {value.__name__} is not known; define it in a notebook cell, without a "
                    "magic such as %%time, or in a file"
                )
            add(value.__name__, user)
            source = f"{name} = {value.__name__}"
        else:
            source = _as_source(name, value)
        if source is None:
            raise UsageError(
                f"{user} uses {name}, a {type(value).__name__} that lives in this notebook only, so no other "
                f"process can have it; make it inside the function, or pass it as an argument"
            )
        parts.append(source)

    for value in values:
        add(value.__name__, value.__name__)
    return "\n\n\n".join(parts) + "\n"


Statements: TypeAlias = dict[str, str | None]  # name → statement that imports or defines it; None for others


def _defined(name: str, value: object, cells: Mapping[str, Statements]) -> str | None:
    """Return the statement that made the present value of a name, or None if it is not known.

    A cell that is executed again keeps its place among the cells. So a function, and a class with methods, is
    taken from the cell that its code names. Anything else is taken from the newest cell with the name.
    """
    newest = [statements[name] for statements in cells.values() if name in statements]
    live: Any = inspect.unwrap(value) if callable(value) else value  # what stands below its decorators
    functions = [inspect.unwrap(part) for part in vars(live).values()] if isinstance(live, type) else [live]
    files = [part.__code__.co_filename for part in functions if isinstance(part, types.FunctionType)]
    written = [file for file in files if file != "<string>"]  # as the methods of a dataclass are not
    if not written or live.__module__ != "__main__":
        return newest[-1] if newest else None
    decorated_there = value is live or (newest and newest[-1] is not None)
    return cells.get(written[0], {}).get(name) if decorated_there else None


def _cells() -> dict[str, Statements]:
    """Return what each cell imports or defines at its top level, in the order in which cells came in."""
    cells: dict[str, Statements] = {}
    for file in [file for file in linecache.cache if "ipykernel" in file or file.startswith("<")]:
        text, sources = "".join(linecache.getlines(file)), Statements()
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a shell command or a magic
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                sources[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
            elif isinstance(node, ast.Import | ast.ImportFrom):
                home = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    sources[bound] = f"{home}import {ast.unparse(alias)}"
            else:
                for child in ast.walk(node):
                    if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                        sources[child.id] = None
        cells[file] = sources
    return cells


def _names_used(source: str) -> list[str]:
    """Return the names that a statement reads, in the order of their first use."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    quoted = [text for text in texts if text.isidentifier()]  # annotations that are written as strings
    return list(dict.fromkeys([*names, *quoted]))


def _as_source(name: str, value: object) -> str | None:
    """Return the line that makes an imported object or a constant; None if it is neither."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    home, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    module = vars(sys.modules.get(str(home), builtins))
    if home != "__main__" and qualname is not None and module.get(qualname) is value:
        return f"from {home} import {qualname} as {name}"
    text = repr(value)
    try:
        same = len(text) <= 10_000 and ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return f"{name} = {text}" if same else None


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
        if not gate.is_said(text):
            install(self._at(self._root()), text)
            if admit(text) is not None:  # then only these files are importable
                return
        if is_file(place.home) or place.home == NOTEBOOK:
            install(self._at(self._root()))
            return
        importable = _importable_from(place.home)
        if importable is not None and _holds(importable, self.contents):
            return
        root = str(self._root())
        install(self._at(Path(root)))
        if importable is not None:  # other code of this name would be found first
            sys.path.insert(0, root)

    def _at(self, root: Path) -> CodeLocation:
        place = self.sources.place
        file = root / Path(place.file).relative_to(place.root)
        return CodeLocation(place.home, str(file), str(root))

    def _root(self) -> Path:
        """Return a folder that holds exactly these files: the original one, or a private copy."""
        original = Path(self.sources.place.root)
        there = original.is_absolute() and _holds(original, self.contents)
        return original if there else unpacked(self.contents)


class RunCode:
    """The code of all references of a run, installed in every process that unpickles it.

    Args:
        parts: The code of each reference.
    """

    def __init__(self, parts: tuple[CarriedCode, ...] = ()) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.parts, gate.state())


def _arrived(parts: tuple[CarriedCode, ...], known: gate.Knowledge) -> RunCode:
    gate.inherit(known)
    for part in parts:
        part.settle()
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
        code = from_cells.get(role)
        if code is None:
            sources = sources_of(text)
            root = Path(sources.place.root)
            code = CarriedCode(role, sources, {name: (root / name).read_bytes() for name in sources.files})
        _OWN.add(code.sources.place.home)
        parts.append(code)
    roots: dict[str, dict[str, bytes]] = {}
    for part in parts:
        roots.setdefault(part.sources.place.root, {}).update(part.contents)
    return RunCode(tuple(replace(part, contents=roots[part.sources.place.root]) for part in parts))


def defined_here(text: str) -> bool:
    """Return whether a reference names what this process's own notebook or prompt defines."""
    home, _, name = text.rpartition(":")
    main = sys.modules.get("__main__")
    return home == NOTEBOOK and main_file() is None and hasattr(main, name.partition(".")[0])


def _from_cells(references: Mapping[str, str]) -> dict[str, CarriedCode]:
    """Return the code of functions and classes of this notebook, as one file that defines them all."""
    main = vars(sys.modules["__main__"])
    values = [main[text.rpartition(":")[2].partition(".")[0]] for text in references.values()]
    defined = [value for value in values if isinstance(value, types.FunctionType | type)]
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
    if not _holds(folder, contents):
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
        for name, data in contents.items():
            target = gate.within(part, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        try:
            part.rename(folder)
        except OSError:  # another process was first, or what lies there was changed
            return folder if _holds(folder, contents) else part
    return folder


def _private_folder() -> Path:
    """Return a folder for temporary files that only this user can enter."""
    shared = Path(tempfile.gettempdir()) / f"raffed-code-{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    status = shared.lstat()
    safe = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return shared if safe else Path(tempfile.mkdtemp(prefix="raffed-code-"))


def _importable_from(home: str) -> Path | None:
    """Return the folder from which Python would import the top package of a module, or None."""
    top = home.partition(".")[0]
    for folder in map(Path, sys.path):
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return folder
    return None


def _holds(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Return whether a folder holds exactly these files."""
    try:
        return all((folder / name).read_bytes() == data for name, data in contents.items())
    except OSError:
        return False

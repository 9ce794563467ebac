"""Where the code of a reference lies, found without importing it, so that it can be compared before it runs.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raffed.errors import UsageError
from raffed.own.user_code import is_user_code

NOTEBOOK: Final = "notebook"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PLACES: dict[str, CodeLocation] = {}  # what stands before the colon → its place, by `place_at`


@dataclass(frozen=True)
class CodeLocation:
    """Where the code of a reference was found.

    Attributes:
        home: What stands before the colon of the reference, such as "mylab.methods" or "./prox.py".
        file: Absolute path of the file that defines it.
        root: Absolute path of the folder from which it is imported: the folder that holds the top package,
            or the folder of the file.
    """

    home: str
    file: str
    root: str


def is_reference(text: str) -> bool:
    """Return whether a text has the form of a reference. Nothing is imported.

    Args:
        text: What a person typed, such as "mylab.methods:myprox".
    """
    home, colon, name = text.rpartition(":")
    if not colon or not _DOTTED.fullmatch(name):
        return False
    return is_file(home) or _DOTTED.fullmatch(home) is not None


def is_file(home: str) -> bool:
    """Return whether what stands before the colon names a Python file rather than a module."""
    return home.endswith(".py")


def place_at(place: CodeLocation) -> None:
    """Note where the code of a reference lies, for `located`."""
    PLACES[place.home] = place


def installed(home: str) -> CodeLocation | None:
    """Return where the code of a reference lies, if `place_at` has said so."""
    return PLACES.get(home)


def located(home: str) -> CodeLocation | None:
    """Return where the code of a reference lies on this machine, or None if it is not there.

    Args:
        home: What stands before the colon of the reference: a file, or a module whose top package may be in
            the current folder.
    """
    if home in PLACES:
        return PLACES[home]
    if home == NOTEBOOK or is_file(home):
        path = Path(home).absolute()
        return CodeLocation(home, str(path), str(path.parent)) if path.is_file() else None
    top, *inner = home.split(".")
    for root in _roots_of(top):
        place = module_at(root, [top, *inner])
        if place is not None:
            return CodeLocation(home, str(place), str(root))
    return None


def module_at(root: Path, parts: list[str]) -> Path | None:
    """Return the file of a module below a folder, or None."""
    path = root.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def neighbour(folder: Path, name: str) -> Path | None:
    """Return the file that a user-defined file in a folder imports under a name without dots.

    It is a module or package that lies beside, or None if there is none. Python's own modules and those of
    installed packages come first.
    """
    place = module_at(folder, [name])
    spec = None if place is None else _spec_of(name)
    installed_one = spec is not None and not (spec.has_location and is_user_code(str(spec.origin)))
    return None if installed_one else place


def _roots_of(top: str) -> list[Path]:
    """Return the folders from which Python would import a top package or module; the current one is last."""
    spec = _spec_of(top)
    paths: list[str] = []
    if spec is not None:
        inside = spec.submodule_search_locations
        paths = list(inside) if inside is not None else [spec.origin] if spec.origin else []
    return [*(Path(path).absolute().parent for path in paths), Path(os.getcwd())]


def _spec_of(top: str) -> importlib.machinery.ModuleSpec | None:
    known = sys.modules.get(top)
    try:
        return known.__spec__ if known is not None else importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None


# The source files behind a reference, and their hashes, so that a run knows the code that it was made with.
#
# The files are the one that defines the object and all files that it imports from the same package,
# directly or by way of others. For a single file, its neighbours in the same folder count as its package.
# Imports are read from the source text, so nothing is executed. An import that is computed while the
# program runs (such as `importlib.import_module(name)`) is not seen.


MOST_FILES = 2000  # a package beyond this size is not a project's own code


@dataclass(frozen=True)
class Sources:
    """What run.json records about the code of one reference.

    Attributes:
        reference: The text as typed, such as "mylab.methods:myprox".
        package: The installed distribution that holds it and its version, such as "mylab 0.1"; "" if it is
            not installed.
        files: Path of each file, relative to the folder that it is imported from → SHA-256 of its bytes.
        place: Where the code was found.
    """

    reference: str
    package: str
    files: Mapping[str, str]
    place: CodeLocation


def sources_at(text: str, place: CodeLocation) -> Sources:
    """Return the hashes of the source files of a reference whose code lies at a known place.

    Nothing is imported.
    """
    return Sources(text, _distribution(place), hashes_at(place), place)


def hashes_at(place: CodeLocation) -> dict[str, str]:
    """Return the files of the code at a place: path below its root → SHA-256. Nothing is imported."""
    root = Path(place.root)
    files = {path.relative_to(root).as_posix(): _sha256(path, place.home) for path in files_of(place)}
    return dict(sorted(files.items()))


def files_of(place: CodeLocation) -> list[Path]:
    """Return the defining file and what it imports from the same package, each once.

    Args:
        place: Where the code of the reference lies.
    """
    root = Path(place.root)
    alone = is_file(place.home) or place.home == NOTEBOOK
    top = None if alone else place.home.split(".")[0]
    files: dict[Path, None] = {}
    waiting = [Path(place.file)]
    if top is not None:
        # The `__init__.py` files that Python executes before it imports this file
        waiting += [folder / "__init__.py" for folder in Path(place.file).parents if root in folder.parents]
    while waiting and len(files) < MOST_FILES:
        path = waiting.pop()
        if path in files or not path.is_file():
            continue
        files[path] = None
        for name in _imported_names(path, root):
            first = name.split(".")[0]
            if neighbour(root, first) is not None if top is None else first == top:
                waiting += _files_named(root, name)
    return list(files)


def changed(recorded: Sources, now: Sources) -> list[str]:
    """Return the files that differ between two records of one reference, sorted; a missing file differs."""
    names = recorded.files.keys() | now.files.keys()
    return sorted(name for name in names if recorded.files.get(name) != now.files.get(name))


def _files_named(root: Path, name: str) -> Iterator[Path]:
    """Yield the files that `import name` executes below `root`, the packages above it included."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        at = root.joinpath(*parts[:depth])
        yield at / "__init__.py"
        if not at.is_dir():
            yield at.with_suffix(".py")


def _imported_names(path: Path, root: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, relative ones made absolute."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Python cannot import it either
        return
    package = path.relative_to(root).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            kept = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*kept, *([node.module] if node.module else [])])
            yield from ([base] if base else [])
            yield from (f"{base}.{a.name}" if base else a.name for a in node.names if a.name != "*")


def _sha256(path: Path, text: str) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{text}: {path} cannot be read ({error.strerror})") from error


def _distribution(place: CodeLocation) -> str:
    """Return name and version of the installed distribution that holds a module; "" if there is none."""
    if is_file(place.home) or place.home == NOTEBOOK:
        return ""
    names = _distributions(tuple(sys.path)).get(place.home.split(".")[0], [])
    return f"{names[0]} {importlib.metadata.version(names[0])}" if names else ""


@functools.cache
def _distributions(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return top-level module → the distributions in the folders of `path`, which is Python's own.

    Looking at all of them takes half a second.
    """
    return importlib.metadata.packages_distributions()

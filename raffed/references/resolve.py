"""References to code outside raffed: how a name that a person typed becomes an object, in every process.

A reference is one of these texts:

- `package.module:name`: an attribute of a module that Python can import. The current folder counts as a
  place to import from.
- `./file.py:name`: an attribute of a Python file. The path is relative to the current folder.
- `notebook:name`: a function or class that was defined in a notebook cell or at the prompt. Its source is
  collected by `notebook_cells.py` and written into the run's folder.

`load` turns a text into the object. A `CodeLocation` says where the
code was found, so that another process finds the same code: `place_of` makes it, `install` uses it.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from raffed.errors import UsageError
from raffed.references.user_code import user_errors, where_raised

NOTEBOOK: Final = "notebook"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LOADING: list[str] = []  # the references whose files are being executed, the innermost one last
_HOMES: dict[str, str] = {}  # name of the module of a file → what stands before the colon of its reference
_PLACES: dict[str, Path] = {}  # what stands before the colon → its file, where `install` has said so


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


def load(text: str) -> object:
    """Return the object that a reference names.

    Args:
        text: A reference.

    Returns:
        The function, class or other object.

    Raises:
        UsageError: The text is not a reference, or the file, module or name does not exist.
        UserCodeError: The user's file raised an error while it was imported.
    """
    if not is_reference(text):
        raise UsageError(f"{text!r} is not a reference; write package.module:name or ./file.py:name")
    home, _, name = text.rpartition(":")
    found: object = module_of(home)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{text}: {_shown(home)} has no {name!r}; {_alternatives(home)}")
        found = getattr(found, part)
    return found


def module_of(home: str) -> ModuleType:
    """Return the module that stands before the colon of a reference, imported if it is not yet.

    Args:
        home: "package.module", "./file.py" or "notebook".

    Raises:
        UsageError: There is no such file or module.
        UserCodeError: Importing it raised an error.
    """
    if home == NOTEBOOK and home not in _PLACES:
        return sys.modules["__main__"]
    if home in _PLACES and (is_file(home) or home == NOTEBOOK):
        return _module_from(home, _PLACES[home])
    if is_file(home):
        path = Path(home).absolute()
        if not path.is_file():
            raise UsageError(f"{home}: there is no such file (looked for {path})")
        main = sys.modules.get("__main__")
        if main is not None and home == main_file():
            return main
        return _module_from(home, path)
    return _imported(home)


def loading() -> str | None:
    """Return the reference whose file is being imported at this moment, or None.

    A script that starts a run when it is imported would start it again in every process; `run` uses this to
    say so.
    """
    return _LOADING[-1] if _LOADING else None


def stored_module(module: str) -> str:
    """Return what stands for a module in the name of a record in a checkpoint: the module as typed.

    Args:
        module: The `__module__` of a class.
    """
    if module == "__main__":
        return main_file() or NOTEBOOK
    return _HOMES.get(module, module)


@functools.cache
def main_file() -> str | None:
    """Return the running script as a reference names it, or None in a notebook or at the prompt.

    The text is relative to the folder in which the script was started, if the script lies below it.
    """
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not file or spec is not None or not str(file).endswith(".py"):
        return None
    path = Path(file).absolute()
    relative = os.path.relpath(path)
    return path.as_posix() if relative.startswith("..") else f"./{Path(relative).as_posix()}"


def place_of(text: str) -> CodeLocation:
    """Return where the code of a reference lies on this machine.

    Args:
        text: A reference.

    Raises:
        UsageError: The module has no source file.
    """
    home = text.rpartition(":")[0]
    file = getattr(module_of(home), "__file__", None)
    if file is None:
        raise UsageError(f"{text}: {_shown(home)} has no source file that other processes could read")
    path = Path(file).absolute()
    if is_file(home) or home == NOTEBOOK:
        return CodeLocation(home, str(path), str(path.parent))
    depth = home.count(".") + (path.name == "__init__.py")
    return CodeLocation(home, str(path), str(path.parents[depth]))


def install(place: CodeLocation) -> None:
    """Make a reference resolvable in this process, as it was where `place_of` looked.

    A file or module that Python finds by itself is left as it is; otherwise `place.root` becomes the last
    folder to import from.
    """
    if is_file(place.home) or place.home == NOTEBOOK:
        if place.home == main_file() and Path(place.home).absolute() == Path(place.file):
            return
        _PLACES[place.home] = Path(place.file)
    _importable(place.root)


def installed(home: str) -> Path | None:
    """Return the file in which the code of a file or notebook lies, if `install` has said so."""
    return _PLACES.get(home)


def _imported(home: str) -> ModuleType:
    _importable(os.getcwd())
    with _guarded(home):
        try:
            return importlib.import_module(home)
        except ModuleNotFoundError as error:
            if error.name is None or not (home + ".").startswith(error.name + "."):
                raise  # the module exists, and what it imports does not
            raise UsageError(
                f"there is no module {error.name!r} for the reference {home}:…; install the package that "
                f"holds it (pip install -e .), or start raffed in the folder that holds it"
            ) from error


class FromSource(importlib.machinery.SourceFileLoader):
    """Compile a file each time that it is imported.

    Python takes a compiled file in __pycache__ for that of the source if both the size and the second of the
    last change are equal. After a quick edit the code that is executed would not be the code that is hashed.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_from(home: str, path: Path) -> ModuleType:
    """Import a file under a name of its own, once for each text by which it was named."""
    name = "raffed_file_" + re.sub(r"\W", lambda one: f"_{ord(one.group()):x}_", home)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    _importable(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{home}: Python cannot read {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name], _HOMES[name] = module, home
    try:
        with _guarded(home):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _importable(folder: str) -> None:
    """Let Python import from a folder too, after all other places."""
    if folder not in sys.path and not ("" in sys.path and folder == os.getcwd()):
        sys.path.append(folder)


@contextmanager
def _guarded(home: str) -> Iterator[None]:
    """Report an error that importing user code raises by the user's own file and line.

    So does a request that raffed refuses while the user's code is imported, as a decorator does.
    """
    _LOADING.append(home)
    try:
        with user_errors(home):
            yield
    except UsageError as error:
        where = where_raised(error, "")
        said = re.match(r"\S+\.py:\d+: ", str(error))  # by the decorator, or for a file that this one imports
        if where and not said:
            error.args = (f"{where}: {error}",)
        raise
    finally:
        _LOADING.pop()


def _shown(home: str) -> str:
    return "this notebook" if home == NOTEBOOK else home


def _alternatives(home: str) -> str:
    names = sorted(
        name
        for name, value in vars(module_of(home)).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") != "typing"
    )
    return f"it has {', '.join(names[:12])}" if names else "it defines no function and no class"


__all__ = [
    "CodeLocation",
    "install",
    "installed",
    "is_reference",
    "load",
    "loading",
    "main_file",
    "place_of",
    "stored_module",
]

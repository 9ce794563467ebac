"""References to code outside raffed: how a name that a person typed becomes an object, in every process.

A reference is one of these texts:

- `package.module:name`: an attribute of a module that Python can import. The current folder counts as a
  place to import from.
- `./file.py:name`: an attribute of a Python file. The path is relative to the current folder.
- `notebook:name`: a function or class that was defined in a notebook cell or at the prompt. Its source is
  collected by `carried.py` and written into the run's folder.

`load` turns a text into the object. A `CodeLocation` says where the code was found, so that another process
finds the same code: `place_of` makes it, `install` uses it.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType

from raffed.errors import UsageError
from raffed.own import gate
from raffed.own.located import (
    NOTEBOOK,
    CodeLocation,
    Sources,
    installed,
    is_file,
    is_reference,
    located,
    neighbour,
    place_at,
    sources_at,
)
from raffed.own.user_code import user_errors, where_raised

_LOADING: list[str] = []  # the references whose files are being executed, the innermost one last
_HOMES: dict[str, str] = {}  # name of the module of a file → what stands before the colon of its reference
_MEMBERS: dict[str, dict[str, str]] = {}  # folder of code that a file has named → its files → SHA-256
_NAMED: set[str] = set()  # top packages of such code


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
    value: object = module_of(text)
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{text}: {_shown(home)} has no {name!r}; {_alternatives(text)}")
        value = getattr(value, part)
    return value


def module_of(text: str) -> ModuleType:
    """Return the module that a reference names, imported if it is not yet and the gate lets it pass.

    Args:
        text: A reference.

    Raises:
        UsageError: There is no such file or module, or a file names it and the user has not trusted it.
        UserCodeError: Importing it raised an error.
    """
    members = admit(text)
    home = text.rpartition(":")[0]
    place = installed(home)
    if home == NOTEBOOK and place is None:
        return sys.modules["__main__"]
    if is_file(home) or home == NOTEBOOK:
        path = Path(home).absolute() if place is None else Path(place.file)
        if not path.is_file():
            raise UsageError(f"{home}: there is no such file (looked for {path})")
        main = sys.modules.get("__main__")
        if main is not None and place is None and home == main_file():
            return main
        return _module_from(home, path, "" if members is None else members[path.name])
    return _imported(home, members is None)


def admit(text: str) -> dict[str, str] | None:
    """Return which files of a reference may be imported, and make exactly these importable.

    Returns:
        Path of each file → SHA-256; None for what the user has named, which may import what lies beside it.

    Raises:
        UntrustedCodeError: A file names it, and the user has not trusted it.
    """
    files, home = gate.check(text), text.rpartition(":")[0]
    place = located(home)
    if files and place is not None:
        _MEMBERS.setdefault(place.root, {}).update(files)
        if not (is_file(home) or home == NOTEBOOK):
            _NAMED.add(home.partition(".")[0])
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Members)]
        sys.meta_path[:] = [_FINDERS[0], *others, _FINDERS[1]]
    return files


class _Members(importlib.abc.MetaPathFinder):
    """Finds the files of code that a file has named and the user has trusted, and nothing that lies beside.

    Modules of installed packages come first, except for the packages that references name.
    """

    def __init__(self, first: bool) -> None:
        self._first = first

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of such code lies."""
        if self._first and name.partition(".")[0] not in _NAMED:
            return None
        below = name.replace(".", "/")
        for root, files in _MEMBERS.items():
            for file in (f"{below}/__init__.py", f"{below}.py"):
                if file in files:
                    loader = FromSource(name, f"{root}/{file}", files[file])
                    return importlib.util.spec_from_file_location(name, loader.path, loader=loader)
            if any(file.startswith(f"{below}/") for file in files):  # a package without __init__.py
                spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = []
                return spec
        return None


_FINDERS = (_Members(first=True), _Members(first=False))


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
    file = getattr(module_of(text), "__file__", None)
    if file is None:
        raise UsageError(f"{text}: {_shown(home)} has no source file that other processes could read")
    path = Path(file).absolute()
    if is_file(home) or home == NOTEBOOK:
        return CodeLocation(home, str(path), str(path.parent))
    depth = home.count(".") + (path.name == "__init__.py")
    return CodeLocation(home, str(path), str(path.parents[depth]))


def sources_of(text: str) -> Sources:
    """Return the hashes of the source files of a reference, as they are on the disk now.

    Args:
        text: A reference that can be resolved in this process.

    Raises:
        UsageError: The code has no source file, or a file cannot be read.
    """
    return sources_at(text, place_of(text))


def install(place: CodeLocation, text: str = "") -> None:
    """Make a reference resolvable in this process, as it was where `place_of` looked.

    A file or module that Python finds by itself is left as it is; otherwise `place.root` becomes the last
    folder to import from. If a file has named `text`, only the files that the gate admits become importable.
    """
    file = is_file(place.home) or place.home == NOTEBOOK
    if file and place.home == main_file() and Path(place.home).absolute() == Path(place.file):
        return
    if file or text:
        place_at(place)
    if not text:
        _importable(place.root)


def _imported(home: str, said: bool) -> ModuleType:
    if said:
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

    Args:
        fullname: Name of the module.
        path: Its file.
        sha256: The hash that the file must have; without it any.
    """

    def __init__(self, fullname: str, path: str, sha256: str = "") -> None:
        super().__init__(fullname, path)
        self._sha256 = sha256

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source as it is now."""
        data = self.get_data(self.path)
        if self._sha256 and hashlib.sha256(data).hexdigest() != self._sha256:
            raise ImportError(f"{self.path} was changed while it was imported")
        return self.source_to_code(data, self.path)


def _module_from(home: str, path: Path, sha256: str) -> ModuleType:
    """Import a file under a name of its own, once for each text by which it was named.

    `sha256` is the hash that it must have, or "" for a file of the user's own, which imports its neighbours.
    """
    name = "raffed_file_" + re.sub(r"\W", lambda match: f"_{ord(match.group()):x}_", home)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if not sha256:
        _importable(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path), sha256))
    if spec is None or spec.loader is None:
        raise UsageError(f"{home}: Python cannot read {path}")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import_in(home, path.parent, sha256)}
    sys.modules[name], _HOMES[name] = module, home
    try:
        with _guarded(home):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_in(home: str, folder: Path, sha256: str) -> Callable[..., ModuleType]:
    """Return the `import` of a user-defined file, which finds the modules that lie beside this file.

    They have names of their own in this process, so that files of two folders may each have a `common.py`
    beside them. Python itself would give both files the one that it has imported first.
    """
    beside = home[: home.rfind("/") + 1]

    def imported(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        place = neighbour(folder, top) if level == 0 and home != NOTEBOOK else None
        expected = _MEMBERS.get(str(folder), {}) if sha256 else None
        if place is None or (expected is not None and place.name not in expected):
            return builtins.__import__(name, globals, locals, fromlist, level)
        if place.name == f"{name}.py":
            return _module_from(f"{beside}{place.name}", place, expected[place.name] if expected else "")
        module = builtins.__import__(name, globals, locals, fromlist, level)
        actual = Path(str(sys.modules[top].__file__))
        if actual != place:
            raise UsageError(
                f"{home} imports {top}, and {place} lies beside it, but this process has imported {actual} "
                "under that name; give one of the two packages another name"
            )
        return module

    return imported


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


def _alternatives(text: str) -> str:
    names = sorted(
        name
        for name, value in vars(module_of(text)).items()
        if not (name.startswith("_") or isinstance(value, ModuleType))
        and getattr(value, "__module__", "") not in ("typing", "__future__")
    )
    return f"it has {', '.join(names[:12])}" if names else "it defines nothing"

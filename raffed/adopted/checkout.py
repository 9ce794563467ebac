"""The families of engines: how the releases of each are laid out, stepped, and set.

An author's checkout as data: its files as syntax trees, its family, methods, flags, and what it lacks.

Nothing in it is imported or executed, and git is not called, because a checkout's own settings may name
programs for git to start.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib.util
import json
import re
import shutil
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from raffed.errors import RaffedError, UsageError
from raffed.own.gate import within
from raffed.results.files import read_regular
from raffed.results.runfile import RUN_FILE


class Family(NamedTuple):
    """A kind of engine.

    Attributes:
        name: The word before the colon of a method, such as `pfllib:PATH#NAME`.
        main: The name of the file that the author starts.
        flag: The flag of its parser that names the method.
        servers: The package that holds the servers.
        clients: The package that holds the clients.
        rounds: The attribute over whose range the server's loop goes.
        extra: How many iterations the loop has beyond that number.
        tests: Beginnings of the names of the server's functions whose answers are scores.
        data: The folder of the clients' samples, from the main file's folder, with {dataset}, {clients} and
            {seed} in its name.
        central: Whether the samples of all clients lie in one array, and the server's model is scored on the
            test set. Otherwise every client has samples of its own for both.
        set_by: Flag of the author's parser → the field, or option, that sets it. Of several flags of a field
            the first one that the parser has stands for it.
        given: Flag → its value in every run, where the parser has it.
    """

    name: str
    main: str
    flag: str
    servers: str
    clients: str
    rounds: str
    extra: int
    tests: Sequence[str]
    data: str
    central: bool
    set_by: Mapping[str, str]
    given: Mapping[str, str | float | bool]


TABLE = tomllib.loads(Path(__file__).with_name("families.toml").read_text())
FAMILIES = [Family(name, **about) for name, about in TABLE.items()]


Kind = TypeVar("Kind", bound=ast.AST)
LARGEST = 4 * 2**20  # bytes of one source file
DEEPEST = 3  # folders above a main file


class CodeLine(NamedTuple):
    """A line of a file, by its path below the checkout."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class AuthorFlag:
    """An option of the author's parser. `default` and `kind` are as the source has them."""

    names: tuple[str, ...]
    kind: str
    default: str
    choices: tuple[str, ...]
    place: CodeLine


@dataclass(frozen=True)
class AuthorMethod:
    """A method that the main file compares its flag with. `server` is None if no file defines its server."""

    name: str
    server: str | None
    place: CodeLine


@dataclass(frozen=True, order=True)
class Missing:
    """A package that is not installed, a file that is not released, or a name that nothing defines."""

    name: str
    place: CodeLine

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


@dataclass
class Source:
    """One file of the author's.

    Attributes:
        path: Its path below the main file's folder, from which modules are named.
        shown: Its path below the checkout.
        tree: Its syntax tree.
        around: The classes and functions around each node, outermost first.
    """

    path: str
    shown: str
    tree: ast.Module
    around: dict[ast.AST, tuple[ast.ClassDef | ast.FunctionDef, ...]] = field(default_factory=dict)
    _kinds: dict[type[ast.AST], list[ast.AST]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._enter(self.tree, ())

    def _enter(self, node: ast.AST, around: tuple[ast.ClassDef | ast.FunctionDef, ...]) -> None:
        self.around[node] = around
        self._kinds.setdefault(type(node), []).append(node)
        inner = (*around, node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else around
        for child in ast.iter_child_nodes(node):
            self._enter(child, inner)

    def at(self, node: ast.AST) -> CodeLine:
        """Return the place of a node."""
        return CodeLine(self.shown, getattr(node, "lineno", 1))

    def function(self, node: ast.AST) -> str:
        """Return the name of the function around a node, or ""."""
        names = [outer.name for outer in self.around[node] if isinstance(outer, ast.FunctionDef)]
        return names[-1] if names else ""

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return all nodes of one kind."""
        return cast("list[Kind]", self._kinds.get(kind, []))

    def imports(self) -> Iterator[tuple[ast.AST, str, list[ast.alias]]]:
        """Yield each import: its statement, the module, with leading dots resolved, and what is taken."""
        package = self.path.split("/")[:-1]
        for plain in self.all(ast.Import):
            yield from ((plain, alias.name, []) for alias in plain.names)
        for node in self.all(ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node, module, node.names


class Checkout:
    """What a folder of an author's code says about itself.

    Args:
        folder: The folder, or one above the main file.

    Raises:
        UsageError: If it is no folder, or holds no main file of a known family.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; give the folder of an author's code")
        self.family, self.main = _main_of(folder)
        self.root = self.main.parent
        self.unreadable: list[Missing] = []
        self.sources = self._reached()

    @functools.cached_property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every Python file of the checkout by its path."""
        return _hashes(self.folder)

    @functools.cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of all Python files of the checkout together."""
        return hashlib.sha256(json.dumps(self.hashes, sort_keys=True).encode()).hexdigest()

    def copy_to(self, target: Path) -> None:
        """Copy the Python files."""
        for name in self.hashes:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / name, target / name)
        self.check_same(target)

    def check_same(self, folder: Path) -> None:
        """Raise a RaffedError if a folder does not hold the files whose hashes were taken."""
        if self.hashes.items() - _hashes(folder).items():
            raise RaffedError(f"{self.folder}: files changed while they were executed; start the run anew")

    def named(self, path: Path) -> str:
        """Return a path below the checkout as text."""
        return path.relative_to(self.folder).as_posix()

    def _below_root(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def file_of(self, module: str) -> Path | None:
        """Return the file of a module of the author's, or None."""
        path = self._path_of(module)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
        return None

    def _path_of(self, module: str) -> Path:
        return self.root.joinpath(*filter(None, module.split(".")))

    def is_in(self, package: str, source: Source) -> bool:
        """Return whether a file belongs to the family's package of `servers` or `clients`."""
        return source.path.startswith(getattr(self.family, package).replace(".", "/") + "/")

    def is_local(self, module: str) -> bool:
        """Return whether a module's first part is a folder or file beside the main file."""
        first = self.root / module.split(".")[0]
        return first.is_dir() or first.with_suffix(".py").is_file()

    def _parsed(self, path: Path) -> Source | None:
        """Return a file's source with paths below the main file's folder, or note that it is not Python."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as odd escapes in strings of the author's
                tree = ast.parse(_bytes(self.folder, path))
            return Source(self._below_root(path), self.named(path), tree)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            self.unreadable.append(Missing(str(error), CodeLine(self.named(path), line)))
            return None

    def _reached(self) -> dict[str, Source]:
        """Return the files that the main file imports, directly or not, by their paths below its folder."""
        reached: dict[str, Source] = {}
        waiting, seen = [self.main], {self.main}
        while waiting:
            source = self._parsed(waiting.pop(0))
            if source is None:
                continue
            reached[source.path] = source
            for _, module, taken in source.imports():
                for name in (module, *(f"{module}.{alias.name}" for alias in taken)):
                    file = self.file_of(name) if self.is_local(name) else None
                    if file is not None and file not in seen:
                        seen.add(file)
                        waiting.append(file)
        return reached

    @property
    def entry(self) -> Source:
        """Return the main file's source."""
        if self.main.name not in self.sources:
            problem = self.unreadable[0]
            raise UsageError(f"{self.main} is not Python of this version: {problem.name}")
        return self.sources[self.main.name]

    def flags(self) -> list[AuthorFlag]:
        """Return the options of the author's parser, in their order."""
        flags = []
        for node in self.entry.all(ast.Call):
            if last_name(node.func) != "add_argument":
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            names = tuple(str(name.value) for name in node.args if isinstance(name, ast.Constant))
            kind = text_of(given.get("type")) or text_of(given.get("action")).strip("'") or "str"
            choices = given.get("choices")
            listed = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
            values = tuple(str(choice.value) for choice in listed if isinstance(choice, ast.Constant))
            default = text_of(given.get("default")) or "None"
            flags.append(AuthorFlag(names, kind, default, values, self.entry.at(node)))
        return sorted(flags, key=lambda flag: flag.place)

    def methods(self) -> list[AuthorMethod]:
        """Return the methods that the main file knows, each with the file of its server."""
        methods: dict[str, AuthorMethod] = {}
        for node in sorted(self.entry.all(ast.If), key=position):
            compared = node.test
            if not (isinstance(compared, ast.Compare) and last_name(compared.left) == self.family.flag):
                continue
            names = [c.value for c in compared.comparators if isinstance(c, ast.Constant)]
            used = [name.id for line in node.body for name in ast.walk(line) if isinstance(name, ast.Name)]
            servers = [file for name in used if (file := self._server(name))]
            for name in names:
                if isinstance(name, str) and name not in methods:
                    methods[name] = AuthorMethod(name, next(iter(servers), None), self.entry.at(node))
        return list(methods.values())

    def _server(self, name: str) -> str | None:
        """Return the file in the package of servers that defines a class, as the main file names it."""
        for _, module, taken in self.entry.imports():
            if module.startswith(self.family.servers):
                names, file = {alias.asname or alias.name for alias in taken}, self.file_of(module)
                if name in names and file:
                    return self._below_root(file)
                if "*" in names:
                    return next(self._defining({name}), None)
        return None

    def _defining(self, names: set[str]) -> Iterator[str]:
        """Yield the files in the package of servers that define one of some classes."""
        for path, source in self.sources.items():
            defined = {node.name for node in source.all(ast.ClassDef)}
            if self.is_in("servers", source) and defined & names:
                yield path

    def loop_of(self, server: str) -> Source:
        """Return the file with the loop over rounds: the server's, or that of a class it builds on."""
        waiting = [server]
        for path in waiting:
            source = self.sources[path]
            if any(function.name == "train" for function in source.all(ast.FunctionDef)):
                return source
            bases = {last_name(base) for node in source.all(ast.ClassDef) for base in node.bases}
            waiting += [other for other in self._defining(bases) if other not in waiting]
        return self.sources[server]

    def packages(self) -> list[Missing]:
        """Return the packages that are imported and not installed here, each where it is imported first."""
        foreign = {name.split(".")[0]: place for name, place in self._imported() if not self.is_local(name)}
        absent = [name for name in foreign if importlib.util.find_spec(name) is None]
        return sorted(Missing(name, foreign[name]) for name in absent)

    def files(self) -> list[Missing]:
        """Return the modules of the author's that are imported and not released."""
        local = {name: place for name, place in self._imported() if self.is_local(name)}
        lost = [name for name in local if not (self.file_of(name) or self._path_of(name).is_dir())]
        return sorted(Missing(name, local[name]) for name in lost)

    def _imported(self) -> list[tuple[str, CodeLine]]:
        """Return each module that is imported, and where; the first place of a module comes last."""
        sources = self.sources.values()
        places = [(name, each.at(node)) for each in sources for node, name, _ in each.imports() if name]
        return places[::-1]

    def names(self) -> list[Missing]:
        """Return names that are used and defined nowhere, and methods called on self that no class has."""
        undefined: dict[tuple[str, str], Missing] = {}
        defined = {name for source in self.sources.values() for name in _attributes(source)}
        foreign = self._foreign()
        for source in self.sources.values():
            known = self._known(source, {source.path})
            lost: list[tuple[str, ast.expr]] = []
            lost += [(node.id, node) for node in source.all(ast.Name) if known and node.id not in known]
            for call in source.all(ast.Call):
                classes = {outer.name for outer in source.around[call] if isinstance(outer, ast.ClassDef)}
                called, method = text_of(call.func), last_name(call.func)
                on_self = bool(classes) and not classes & foreign and called == f"self.{method}"
                if on_self and method not in defined and method[:2] != "__":
                    lost.append((called, call))
            for name, node in sorted(lost, key=lambda name_and_node: position(name_and_node[1])):
                undefined.setdefault((name, source.path), Missing(name, source.at(node)))
        return sorted(undefined.values(), key=lambda missing: missing.place)

    def _known(self, source: Source, seen: set[str]) -> set[str] | None:
        """Return every name that a file binds, or None if it takes all names of an installed package."""
        known = {*dir(builtins), "__file__", "__name__", "__class__"}
        known |= {node.id for node in source.all(ast.Name) if not isinstance(node.ctx, ast.Load)}
        known |= {node.arg for node in source.all(ast.arg)}
        named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler)
        known |= {str(getattr(node, "name", "")) for kind in named for node in source.all(kind)}
        for alias in source.all(ast.alias):
            known.add((alias.asname or alias.name).split(".")[0])
        stars = [module for _, module, taken in source.imports() if [alias.name for alias in taken] == ["*"]]
        for module in stars:
            file = self.file_of(module) if self.is_local(module) else None
            star = self.sources.get(self._below_root(file)) if file else None
            more = self._known(star, seen | {star.path}) if star and star.path not in seen else set()
            if star is None or more is None:
                return None
            known |= more
        return known

    def _foreign(self) -> set[str]:
        """Return the classes that build on one that is not the author's, directly or not."""
        classes = [node for source in self.sources.values() for node in source.all(ast.ClassDef)]
        bases = {node.name: {last_name(base) for base in node.bases} - {"object"} for node in classes}
        foreign: set[str] = set()
        for _ in bases:
            foreign |= {name for name, of in bases.items() if of - bases.keys() or of & foreign}
        return foreign

    def commit(self) -> str | None:
        """Return the commit that is checked out, as the files of git have it."""
        for folder in (self.folder, *self.folder.resolve().parents[:2]):
            head = _line_of(folder / ".git", "HEAD")
            if head is not None:
                name = head.removeprefix("ref: ")
                listed = (_line_of(folder / ".git", "packed-refs", f" {name}") or "").partition(" ")[0]
                return head if name == head else _line_of(folder / ".git", name) or listed or None
        return None

    def licence(self) -> str | None:
        """Return the first words of the file that holds the licence, or None if there is none."""
        for file in sorted(self.folder.glob("*")):
            if re.match(r"(licen[cs]e|copying)(\.|$)", file.name, re.IGNORECASE) and file.is_file():
                return " ".join(_text(self.folder, file).split()[:6])
        return None

    def versions(self) -> list[Missing]:
        """Return the lines of the release that say which versions it was written for."""
        pins = []
        stated = r"[\s-]*((python|torch|pytorch|numpy|torchvision)\s*[=<>~!]=?[^\s]*)"
        for path in sorted(self.folder.rglob("*")):
            if re.fullmatch(r"(requirements.*\.txt|env.*\.ya?ml)", path.name) and path.is_file():
                for number, line in enumerate(_text(self.folder, path).splitlines(), 1):
                    if match := re.match(stated, line):
                        pins.append(Missing(match[1], CodeLine(self.named(path), number)))
        return pins


def _main_of(folder: Path) -> tuple[Family, Path]:
    """Return the family of a checkout and its main file, the one with the shortest path."""
    for depth in range(DEEPEST + 1):
        for family in FAMILIES:
            for path in sorted(folder.glob("*/" * depth + family.main)):
                servers = re.escape(family.servers)
                if re.search(rf"^(from|import)\s+{servers}\b", _text(folder, path), re.MULTILINE):
                    return family, path
    known = ", ".join(f"{family.name} ({family.main} that imports {family.servers})" for family in FAMILIES)
    raise UsageError(f"{folder} holds no main file of a known family; known are {known}")


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hashes of the Python files below a folder, without the copies in runs' folders."""
    files = sorted(path for path in folder.rglob("*.py") if path.is_file())
    runs = {path.parent for path in folder.rglob(RUN_FILE)}
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(_bytes(folder, path)).hexdigest()
        for path in files
        if not runs & {*path.parents}
    }


def _bytes(folder: Path, path: Path) -> bytes:
    """Return a file of the checkout. A link out of it, a pipe or a file that is too large is refused."""
    path = within(folder, path.relative_to(folder).as_posix())
    if path.stat().st_size > LARGEST:
        raise UsageError(f"{path} has more than {LARGEST:,} bytes, which no source file needs")
    return read_regular(path)


def _text(folder: Path, path: Path) -> str:
    return _bytes(folder, path).decode("utf-8", "replace")


def _line_of(folder: Path, name: str, ending: str = "") -> str | None:
    """Return the first line of a file that has an ending, or None if there is none."""
    if not (folder / name).is_file():
        return None
    lines = _text(folder, folder / name).splitlines()
    return next((line.strip() for line in lines if line.endswith(ending)), None)


def _attributes(source: Source) -> Iterator[str]:
    """Yield the names of functions and classes of a file, and what it assigns as an attribute."""
    yield from (node.name for node in source.all(ast.FunctionDef))
    yield from (node.name for node in source.all(ast.ClassDef))
    yield from (node.attr for node in source.all(ast.Attribute) if isinstance(node.ctx, ast.Store))
    yield from (node.id for node in source.all(ast.Name) if isinstance(node.ctx, ast.Store))


def position(node: ast.AST) -> tuple[int, int]:
    """Return the line and column of a node, to sort by."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def text_of(node: ast.AST | None) -> str:
    """Return an expression as it is written, or "" for None."""
    return "" if node is None else ast.unparse(node)


def last_name(node: ast.AST) -> str:
    """Return the last name of a dotted expression, such as `algorithm` of `args.algorithm`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""

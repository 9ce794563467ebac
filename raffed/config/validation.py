"""What an argument may be, declared once in the signature of its function, and checked by pydantic.

    def fedprox(mu: Annotated[float, Range(0.0, 1e6), Doc("μ, weight of the pull.")] = 0.01) -> Method: ...

The type says which kind of value an argument takes. `Range`, `Length`, `Words` and `Doc` say the rest. A
`Literal` type is a choice. Sections of the configuration are dataclasses whose fields are declared in the
same way. The listings and options of the command line read the same declarations. This module imports
neither torch nor Ray, and pydantic, which takes 0.1 seconds, only when something is checked.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from raffed.errors import UnknownNameError, UsageError

# What JSON can express, and what may stand in a configuration, where tuples are also lists. A signature that
# names them is read when it runs, where a recursive alias could not be evaluated.
if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
    from pydantic_core import CoreSchema

    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
    Value: TypeAlias = "Mapping[str, Value] | Sequence[Value] | str | int | float | bool | None"
else:
    Json = Value = object

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
NO_DEFAULT: Final = dataclasses.MISSING
LIST, TABLE = "list of int", "table"
KINDS = ("bool", "int", "float", "str", "None", LIST, TABLE)  # of other types nothing is checked


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`. Both ends belong to the range, the lower one not if `open_low`.

    The range of a list is that of each of its numbers.
    """

    low: float
    high: float = math.inf
    open_low: bool = False

    def __str__(self) -> str:
        low, high = map(_short, (self.low, self.high))
        if self.high == math.inf:
            return f"{'>' if self.open_low else '≥'} {low}"
        return f"{'(' if self.open_low else '['}{low}, {high}]"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(kind)
        bounds = {"gt" if self.open_low else "ge": self.low, "le": self.high}
        if schema["type"] == "int":  # an infinite bound is for floats, where it refuses nan
            bounds = {name: int(bound) for name, bound in bounds.items() if abs(bound) != math.inf}
        return {**schema, **bounds}

    def refusal(self) -> str:
        """Why a number outside is refused."""
        if self.high == math.inf and not self.open_low:
            return f"is below {self.low}"
        return f"is outside {'(' if self.open_low else '['}{self.low}, {self.high}]"


def _short(number: float) -> str:
    text = f"{number:g}"
    return text.replace("e+0", "e") if float(text) == number else f"{number}"


@dataclass(frozen=True)
class Length:
    """How many numbers a list has: from `low` to `high`."""

    low: int
    high: int | None = None

    def __contains__(self, count: int) -> bool:
        return self.low <= count and (self.high is None or count <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low} or more"
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic import Field

        return handler.generate_schema(Annotated[kind, Field(min_length=self.low, max_length=self.high)])


@dataclass(frozen=True, init=False)
class Choices:
    """One of these words. For choices that a type cannot state, because they are known only when it runs."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)


class Words(Choices):
    """Zero or more of these words in one text, separated by commas."""


@dataclass(frozen=True)
class Doc:
    """What an argument means. The first sentence can stand alone, as it does in the help of an option."""

    text: str


@dataclass(frozen=True)
class Strength:
    """Marks a coefficient that makes steps larger, so that it may be the reason if training diverges."""


Marker: TypeAlias = Range | Length | Choices | Doc | Strength


@dataclass(frozen=True)
class Declaration:
    """One argument: its name, its type and default as text, what it may be, and what it means."""

    name: str
    kind: str
    default: str = ""
    range: Range | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""
    length: Length | None = None
    words: bool = False  # whether several choices, separated by commas, may be given
    strength: bool = False

    @property
    def kinds(self) -> list[str]:
        """The types that are accepted, one for each part of a union."""
        return self.kind.split(" | ")

    @property
    def shown_kind(self) -> str:
        """The choices if there are any, otherwise the type."""
        shown = " | ".join(filter(None, self.choices))
        if self.words:
            return f"{shown}, separated by commas"
        kind = self.kind.replace("list of", f"list of {self.length}") if self.length else self.kind
        return shown or kind

    @property
    def shown_default(self) -> str:
        """The default as it is typed in a file or in the command line."""
        text = self.default.strip("'")
        if self.kind == LIST:
            return f"[{', '.join(re.findall('[0-9]+', text))}]".replace(" ", "")
        return text.lower() if self.kind == "bool" else text

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return re.split(r"(?<=\.)\s+(?=[^a-z])", self.doc, maxsplit=1)[0]

    def marked(self, *markers: Marker | str) -> Declaration:
        """The same with what these markers say; a later marker replaces an earlier one of its kind."""
        declaration = self
        for marker in markers:
            if isinstance(marker, Range):
                declaration = replace(declaration, range=marker)
            elif isinstance(marker, Length):
                declaration = replace(declaration, length=marker)
            elif isinstance(marker, Choices):
                declaration = replace(declaration, choices=marker.words, words=isinstance(marker, Words))
            elif isinstance(marker, Doc):
                declaration = replace(declaration, doc=marker.text)
            elif isinstance(marker, Strength):
                declaration = replace(declaration, strength=True)
        return declaration

    def accepted(self) -> Any:
        """Return the type by which pydantic checks a value. Of types outside `KINDS` nothing is checked."""
        from pydantic import Field, InstanceOf

        if not all(kind in KINDS for kind in self.kinds):
            return Any
        text: Any = Literal[self.choices] if self.choices else str
        if self.words:
            word = "|".join(map(re.escape, filter(None, self.choices)))
            text = Annotated[str, Field(pattern=rf"^(\s*({word})\s*(,\s*({word})\s*)*)?$")]
        integer: Any = Annotated[int, self.range]
        named: dict[str, Any] = {
            "bool": bool,
            "int": integer,
            "float": Annotated[float, self.range],
            "str": text,
            "None": types.NoneType,
            LIST: Annotated[Sequence[integer], self.length],
            TABLE: InstanceOf[Mapping[str, Any]],
        }
        return functools.reduce(operator.or_, (named[kind] for kind in self.kinds))

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import ConfigDict, TypeAdapter

        # With a length, which all have, a text is also checked to be Unicode
        return TypeAdapter(self.accepted(), config=ConfigDict(strict=True, str_min_length=0))

    def check(self, value: T, prefix: str = "") -> Any:
        """Return `value` in its one spelling: an int that stands for a float is that float.

        A bool is never a number. A tuple is also a list.

        Raises:
            UsageError: `value` has another type, lies outside the range or is none of the choices.
        """
        from pydantic import ValidationError

        try:
            checked = self._adapter.validate_python(value)
        except ValidationError as error:
            raise self._refusal(value, prefix, error) from None
        return dict(checked) if isinstance(checked, Mapping) else checked

    def _refusal(self, value: T, prefix: str, error: ValidationError) -> UsageError:
        """Return the error that says in one line what was given and what is allowed."""
        every = error.errors(include_url=False)
        first = next((detail for detail in every if not detail["type"].endswith("_type")), every[0])
        kind, given, label = first["type"], first["input"], f"{prefix}{self.name} = {value!r}"
        if isinstance(given, str) and kind in ("literal_error", "string_pattern_mismatch"):
            words = [word.strip() for word in given.split(",")] if self.words else [given]
            unknown = next(word for word in words if word not in self.choices)
            name = f"{prefix}{self.name}".rpartition(": ")[2]
            return UnknownNameError(name, unknown, filter(None, self.choices))
        if kind == "string_unicode":
            return UsageError(f"{label}: this name is not UTF-8; rename it")
        if self.range and kind.startswith(("greater", "less")):
            return UsageError(f"{label}{f': {given!r}' if first['loc'] else ''} {self.range.refusal()}")
        if isinstance(value, list | tuple) and kind in ("too_short", "too_long"):
            return UsageError(f"{label} has {len(value)} numbers, but must have {self.length}")
        shown = LIST in self.kinds and re.fullmatch(r"[\d, ]*\d[\d, ]*", str(value))
        remedy = f"; write {self.name}=[{value}]" if shown else ""
        return UsageError(f"{label} is {_a(type(value).__name__)}, but must be {_a(self.kind)}{remedy}")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def plain_kind(text: str) -> str:
    """The words that messages use for a type as it is written, such as `list of int` for Sequence[int]."""
    text = re.sub(r"[\w.]+\.(?=\w)", "", text)
    if re.fullmatch(r"(Sequence|list|tuple)\[int(, (int|\.\.\.))*\]", text):
        return LIST
    return TABLE if text.startswith("Mapping[") else text


def declarations(factory: Callable[..., T]) -> Mapping[str, Declaration]:
    """The arguments of a function, or the fields of a dataclass, by name, read from their annotations."""
    return _read(factory)


@functools.cache
def _read(factory: Callable[..., T]) -> Mapping[str, Declaration]:
    try:
        hints = get_type_hints(factory, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{owner(factory)}: its signature cannot be read ({error}); import what its annotations name "
            "at run time, not only under TYPE_CHECKING"
        ) from error
    declared = {}
    for name, default in _usual(factory).items():
        given = default is not NO_DEFAULT
        start = Declaration(name, type(default).__name__ if given else "", repr(default) if given else "")
        declared[name] = _declared(start, hints[name]) if name in hints else start
    return declared


def _usual(factory: Callable[..., T]) -> dict[str, object]:
    """Return each argument with its default, or with `NO_DEFAULT`."""
    if dataclasses.is_dataclass(factory):
        return {
            field.name: field.default if field.default_factory is NO_DEFAULT else field.default_factory()
            for field in dataclasses.fields(factory)
        }
    empty = inspect.Parameter.empty
    return {
        name: NO_DEFAULT if parameter.default is empty else parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
    }


def check_defaults(factory: Callable[..., T]) -> None:
    """Refuse a default that would be refused if it was given.

    None is allowed for every argument: it is how many write that nothing was given.

    Raises:
        UsageError: A default has another type, or is outside the range or none of the choices.
    """
    usual = _usual(factory)
    for name, argument in declarations(factory).items():
        if usual[name] is not None and usual[name] is not NO_DEFAULT:
            try:
                argument.check(usual[name], f"{owner(factory)}: default of ")
            except UsageError as error:
                raise UsageError(f"{error}; change the default or the declaration") from None


def _declared(start: Declaration, hint: T) -> Declaration:
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        return _declared(start, inner).marked(*markers)
    if get_origin(hint) is Literal:
        return replace(start, kind="str", choices=get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        # Python 3.10 makes Optional[Annotated[…]] of an argument whose default is None
        inside = [part for part in get_args(hint) if get_origin(part) is Annotated]
        if inside:
            return _declared(start, inside[0])
        return replace(start, kind=" | ".join(_text(part) for part in get_args(hint)))
    return replace(start, kind=_text(hint))


def _text(hint: T) -> str:
    if hint is type(None):
        return "None"
    if get_origin(hint) is None and isinstance(hint, type):
        return hint.__name__
    return plain_kind(str(hint))


def table_of(value: Json) -> dict[str, Json]:
    """`value` if it is a table, otherwise an empty table."""
    return value if isinstance(value, dict) else {}


def owner(factory: Callable[..., T]) -> str:
    """The name under which users know a factory: `map_` is the method map."""
    return str(getattr(factory, "__name__", factory)).rstrip("_")


def check_arguments(factory: Callable[..., T], values: Mapping[str, V]) -> None:
    """Check the values that are given for some of a factory's arguments.

    Raises:
        UnknownNameError: for a name that the factory does not have; the message lists the nearest names.
        UsageError: for a value of another type or outside the declared range.
    """
    check_values(owner(factory), declarations(factory), values)


def check_values(name: str, known: Mapping[str, Declaration], values: Mapping[str, V]) -> dict[str, Value]:
    """Return the values of some arguments in one spelling, after a check; `name` is that of their owner."""
    for key in values:
        if key not in known:
            raise UnknownNameError(f"argument of {name}", key, known)
    return {key: known[key].check(value, f"{name}: ") for key, value in values.items()}


def check_call(
    name: str, function: Callable[..., T], supplied: Collection[str], values: Mapping[str, V], option: str
) -> None:
    """Check a person's arguments of a function whose other arguments raffed supplies.

    Args:
        name: What messages call the function.
        function: A function, or a class that is called.
        supplied: The arguments that raffed supplies; nobody else may give them.
        values: Argument → value.
        option: The option by which a person gives an argument, for the message about a missing one.

    Raises:
        UsageError: An argument is unknown, has a wrong value, or is missing.
    """
    check_defaults(function)
    free = {arg.name: arg for arg in declarations(function).values() if arg.name not in supplied}
    check_values(name, free, values)
    for arg in inspect.signature(function).parameters.values():
        by_name = arg.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if by_name and arg.default is inspect.Parameter.empty and arg.name in free and arg.name not in values:
            raise UsageError(f"{name} needs its argument {arg.name}: give {option} {arg.name}=VALUE")


def check_fields(section: str, values: T) -> None:
    """Check every field of a dataclass, and store it in its one spelling; messages say `section.field`."""
    kind = type(values)
    for name, field in declarations(kind).items():
        value = getattr(values, name)
        if value is not getattr(kind, name, NO_DEFAULT):
            object.__setattr__(values, name, field.check(value, f"{section}." if section else ""))


def checked(factory: Callable[P, T]) -> Callable[P, T]:
    """Check a factory's arguments against their declarations in every call, also in direct calls."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(factory, signature.bind(*args, **kwargs).arguments)
        return factory(*args, **kwargs)

    return call


# Fields that store a name and accept what it stands for: a method, a network, a data set, a split.
#
# A configuration stores text only. In Python a field may also be given the function or class itself, or
# something that knows how it is stored. When the program runs, `Name` is `str`, so that a field declares a
# text. Type checkers see a descriptor: what may be given is wider than what is read, which is always a text.


class Importable(Protocol):
    """A function or class, which other processes can import by its module and name."""

    __module__: str
    __qualname__: str


class StoredData(Protocol):
    """A data set that knows the text by which it is found."""

    def reference(self) -> str: ...


class StoredSplit(Protocol):
    """A split that knows its text and its arguments."""

    def stored(self) -> tuple[str, Mapping[str, Value]]: ...


if TYPE_CHECKING:

    class Name(Generic[T]):
        """A field that is given a text or a `T`, and read as a text."""

        def __init__(self, default: str) -> None: ...

        def __get__(self, instance: object, owner: type) -> str: ...

        def __set__(self, instance: object, value: str | T) -> None: ...

else:

    class Name:
        """At run time: `Name[T]` is the type `str`, and `Name(text)` is the text."""

        def __class_getitem__(cls, _: T) -> type[str]:
            return str

        def __new__(cls, default: str) -> str:
            return default


def keep(section: object, **values: str | dict[str, Value]) -> None:
    """Set fields of a frozen section while it is made."""
    for name, value in values.items():
        object.__setattr__(section, name, value)

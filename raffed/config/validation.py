"""What an argument may be, declared once in the signature of its function, and the one check of given values.

    def fedprox(mu: Annotated[float, Range(0.0, 1e6), Doc("μ, weight of the pull.")] = 0.01) -> Method: ...

The type says which kind of value an argument takes. `Range`, `Choices` and `Doc` say the rest. A `Literal`
type is a choice and needs no `Choices`. The listings of the command line read the same declarations. This
module imports neither torch nor Ray.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from raffed.errors import UnknownNameError, UsageError

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
PLAIN: dict[str, type[bool | int | float | str]] = {"bool": bool, "int": int, "float": float, "str": str}


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`. Both ends belong to the range, the lower one not if `open_low`."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.open_low else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low, high = (f"{end:g}".replace("e+0", "e") for end in (self.low, self.high))
        if self.high == math.inf:
            return f"{'>' if self.open_low else '≥'} {low}"
        return f"{'(' if self.open_low else '['}{low}, {high}]"

    def refusal(self, value: float) -> str:
        """Why `value`, which lies outside, is refused."""
        if self.high == math.inf and not self.open_low:
            return f"is below {self.low}"
        return f"is outside {'(' if self.open_low else '['}{self.low}, {self.high}]"


@dataclass(frozen=True)
class Choices:
    """One of these words. For choices that a type cannot state, because they are known only when it runs."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)


@dataclass(frozen=True)
class Doc:
    """What an argument means, in a sentence."""

    text: str


@dataclass(frozen=True)
class Declaration:
    """One argument: its name, its type and default as text, what it may be, and what it means."""

    name: str
    kind: str
    default: str = ""
    range: Range | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""

    @property
    def shown_kind(self) -> str:
        """The choices if there are any, otherwise the type."""
        return " | ".join(self.choices) or self.kind

    def marked(self, *markers: Range | Choices | Doc | str) -> Declaration:
        """The same with what these markers say; a later marker replaces an earlier one of its kind."""
        found = self
        for one in markers:
            if isinstance(one, Range):
                found = replace(found, range=one)
            elif isinstance(one, Choices):
                found = replace(found, choices=one.words)
            elif isinstance(one, Doc):
                found = replace(found, doc=one.text)
        return found

    def check(self, value: T, prefix: str = "") -> None:
        """Raise a UsageError if `value` has another type, lies outside the range or is none of the choices.

        An int is also a float, but a bool is never a number. Types other than bool, int, float, str and None
        are not checked.
        """
        label = f"{prefix}{self.name} = {value!r}"
        if not _fits(value, self.kind.split(" | ")):
            raise UsageError(f"{label} is a {type(value).__name__}, wanted {self.kind}")
        if self.range is not None and isinstance(value, int | float) and value not in self.range:
            raise UsageError(f"{label} {self.range.refusal(value)}")
        if self.choices and isinstance(value, str) and value not in self.choices:
            raise UnknownNameError(self.name, value, self.choices)


def _fits(value: T, kinds: list[str]) -> bool:
    if value is None:
        return "None" in kinds or not set(kinds) <= {*PLAIN, "None"}
    if not set(kinds) <= {*PLAIN, "None"}:
        return True
    if isinstance(value, bool):
        return "bool" in kinds
    wanted = tuple(PLAIN[kind] for kind in kinds if kind != "None")
    return isinstance(value, wanted) or (float in wanted and isinstance(value, int))


@functools.cache
def declarations(factory: Callable[..., T]) -> Mapping[str, Declaration]:
    """The arguments of a function by name, read from its signature."""
    try:
        hints = get_type_hints(factory, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{owner(factory)}: its signature cannot be read ({error}); import what its annotations name "
            f"also when it runs, not under TYPE_CHECKING alone"
        ) from error
    found = {}
    for name, one in inspect.signature(factory).parameters.items():
        given = one.default is not inspect.Parameter.empty
        usual = Declaration(
            name, type(one.default).__name__ if given else "", repr(one.default) if given else ""
        )
        found[name] = _declared(usual, hints[name]) if name in hints else usual
    return found


def _declared(start: Declaration, hint: T) -> Declaration:
    if get_origin(hint) is Annotated:
        inner, *markers = get_args(hint)
        return _declared(start, inner).marked(*markers)
    if get_origin(hint) is Literal:
        return replace(start, kind="str", choices=get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return replace(start, kind=" | ".join(_text(one) for one in get_args(hint)))
    return replace(start, kind=_text(hint))


def _text(hint: T) -> str:
    if hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def owner(factory: Callable[..., T]) -> str:
    """The name under which users know a factory: `map_` is the method map."""
    return str(getattr(factory, "__name__", factory)).rstrip("_")


def check_arguments(factory: Callable[..., T], values: Mapping[str, V]) -> None:
    """Check the values that are given for some of a factory's arguments.

    Raises:
        UnknownNameError: for a name that the factory does not have; the message lists the nearest names.
        UsageError: for a value of another type or outside the declared range.
    """
    known, name = declarations(factory), owner(factory)
    for key, value in values.items():
        if key not in known:
            raise UnknownNameError(f"argument of {name}", key, known)
        known[key].check(value, f"{name}: ")


def checked(factory: Callable[P, T]) -> Callable[P, T]:
    """Check a factory's arguments against their declarations in every call, also in direct calls."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(factory, signature.bind(*args, **kwargs).arguments)
        return factory(*args, **kwargs)

    return call


__all__ = ["Choices", "Declaration", "Doc", "Range", "check_arguments", "checked", "declarations"]

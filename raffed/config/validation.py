"""What an argument may be, declared once in the signature of its function, and the one check of given values.

    def fedprox(mu: Annotated[float, Range(0.0, 1e6), Doc("μ, weight of the pull.")] = 0.01) -> Method: ...

The type says which kind of value an argument takes. `Range`, `Length`, `Words` and `Doc` say the rest. A
`Literal` type is a choice. Sections of the configuration are dataclasses whose fields are declared in the
same way, and so are the contents of run.json and sweep.json, as a `TypedDict` (`check_json`). The listings
and options of the command line read the same declarations. This module imports neither torch nor Ray.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from raffed.config.declaration import (
    Choices,
    Declaration,
    Doc,
    Json,
    Length,
    Range,
    Strength,
    Value,
    Words,
    plain_kind,
)
from raffed.config.json_types import Form, Shape, check_json, fields_of, markers_of
from raffed.errors import UnknownNameError, UsageError

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
NO_DEFAULT: Final = dataclasses.MISSING


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
    found = {}
    for name, default in _usual(factory).items():
        given = default is not NO_DEFAULT
        start = Declaration(name, type(default).__name__ if given else "", repr(default) if given else "")
        found[name] = _declared(start, hints[name]) if name in hints else start
        if given:
            _check_default(owner(factory), found[name], default)
    return found


def _usual(factory: Callable[..., T]) -> dict[str, object]:
    """Return each argument with its default, or with `NO_DEFAULT`."""
    if dataclasses.is_dataclass(factory):
        return {
            field.name: field.default if field.default_factory is NO_DEFAULT else field.default_factory()
            for field in dataclasses.fields(factory)
        }
    empty = inspect.Parameter.empty
    return {
        name: NO_DEFAULT if one.default is empty else one.default
        for name, one in inspect.signature(factory).parameters.items()
    }


def _check_default(name: str, one: Declaration, default: V) -> None:
    """Refuse a default that would be refused if it was given.

    None is allowed for every argument: it is how many write that nothing was given.

    Raises:
        UsageError: The default has another type, or is outside the range or none of the choices.
    """
    if default is None or any(not isinstance(word, str) for word in one.choices):
        return
    try:
        one.check(default, f"{name}: default of ")
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
        inside = [one for one in get_args(hint) if get_origin(one) is Annotated]
        if inside:
            return _declared(start, inside[0])
        return replace(start, kind=" | ".join(_text(one) for one in get_args(hint)))
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


def check_values(name: str, known: Mapping[str, Declaration], values: Mapping[str, V]) -> None:
    """Check the values of some arguments against their declarations; `name` is that of their owner."""
    for key, value in values.items():
        if key not in known:
            raise UnknownNameError(f"argument of {name}", key, known)
        known[key].check(value, f"{name}: ")


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
    own = {one.name: one for one in declarations(function).values() if one.name not in supplied}
    check_values(name, own, values)
    for one in inspect.signature(function).parameters.values():
        by_name = one.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if by_name and one.default is inspect.Parameter.empty and one.name in own and one.name not in values:
            raise UsageError(f"{name} needs its argument {one.name}: give {option} {one.name}=VALUE")


def check_fields(section: str, values: T) -> None:
    """Check every field of a dataclass against its declaration; messages say `section.field`."""
    kind = type(values)
    for name, one in declarations(kind).items():
        value = getattr(values, name)
        if value is not getattr(kind, name, NO_DEFAULT):  # defaults were checked with the declaration
            one.check(value, f"{section}." if section else "")


def checked(factory: Callable[P, T]) -> Callable[P, T]:
    """Check a factory's arguments against their declarations in every call, also in direct calls."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(factory, signature.bind(*args, **kwargs).arguments)
        return factory(*args, **kwargs)

    return call


__all__ = [
    "Choices",
    "Declaration",
    "Doc",
    "Form",
    "Json",
    "Length",
    "Range",
    "Shape",
    "Strength",
    "Value",
    "Words",
    "check_arguments",
    "check_call",
    "check_fields",
    "check_json",
    "check_values",
    "checked",
    "declarations",
    "fields_of",
    "markers_of",
    "table_of",
]

"""The check of JSON against a type: what a file holds is declared once, and this is the one check of it.

    class Inputs(TypedDict):
        shape: Annotated[list[Annotated[int, Range(0)]], Doc("Shape of one input of the network.")]

`check_json(Inputs, found, "inputs")` accepts what a program with these types would write. The markers are
those of arguments (`raffed.config.validation`), `Form` for texts, and `Shape`. Of types that JSON does not
have, such as `object`, nothing is checked.
"""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from raffed.config.declaration import Json, Length, Range

_SHOWN = 60  # characters of a value or a name that a message shows
_NAMES = {
    "dict": "an object",
    "list": "a list",
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "NoneType": "null",
}


@dataclass(frozen=True)
class Form:
    """A text of a certain form.

    Attributes:
        words: What the text must be, as messages say it.
        accepts: Whether a text has the form.
    """

    words: str
    accepts: Callable[[str], bool]


@dataclass(frozen=True)
class Shape:
    """Marks JSON that the program takes as it is, although its type is known: `kind`."""

    kind: Hashable


class MisfitError(ValueError):
    """A value does not belong in its place."""

    def __init__(self, place: str, value: Json, wanted: str) -> None:
        shown = _NAMES[type(value).__name__]
        shown += "" if value is None or isinstance(value, dict | list) else f" ({ascii(value)[:_SHOWN]})"
        super().__init__(f"{place or 'the file'} is {shown}, but must be {wanted}")


def check_json(kind: Hashable, value: Json, place: str = "") -> None:
    """Check that a value is of a type.

    Args:
        kind: A `TypedDict`, `list[…]`, `dict[str, …]`, `Literal`, a union, a plain type, or one of them in
            `Annotated` with markers.
        value: What a file holds.
        place: Where it stands in the file, such as `segments[0].from`.

    Raises:
        ValueError: The value is of another type. The message names the place, the value and what it must be.
    """
    if type(value) is kind:  # most values are plain ones of the very type
        return
    inner, markers = _parted(kind)
    members = [one for one in _members(inner) if _is_kind(_parted(one)[0], value)]
    if not members or not all(_fulfils(one, value) for one in markers):
        raise MisfitError(place, value, described(kind))
    shapes = [one.kind for one in markers if isinstance(one, Shape)]
    found = shapes[0] if shapes else members[0]
    if shapes or get_origin(found) is Annotated:
        check_json(found, value, place)
    elif is_typeddict(found) and isinstance(value, dict):
        _check_fields(found, value, place)
    elif isinstance(value, list) and get_args(found):
        for index, one in enumerate(value):
            check_json(get_args(found)[0], one, f"{place}[{index}]")
    elif isinstance(value, dict) and get_args(found):
        for key, one in value.items():
            check_json(get_args(found)[0], key, f"a name in {place}")
            check_json(get_args(found)[1], one, _below(place, key))


def _check_fields(record: Hashable, value: dict[str, Json], place: str) -> None:
    known = fields_of(record)
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key.lower()[:_SHOWN], known, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{_below(place, key)} is not a field that raffed writes{hint}")
    for name, kind in known.items():
        if name not in value and _is_required(record, kind):
            raise ValueError(f"{_below(place, name)} is missing")
    for key, one in value.items():
        check_json(known[key], one, _below(place, key))


@functools.cache
def fields_of(record: Hashable) -> Mapping[str, Hashable]:
    """Return the fields of a `TypedDict` with their types, in their order, with markers."""
    return get_type_hints(record, include_extras=True)


def markers_of(kind: Hashable) -> tuple[Hashable, ...]:
    """Return the markers of a type in `Annotated`."""
    return _parted(kind)[1]


def described(kind: Hashable) -> str:
    """Return the words that messages use for a type, such as "an integer of 0 or more"."""
    inner, markers = _parted(kind)
    words = " or ".join(dict.fromkeys(_words(one) for one in _members(inner)))
    for one in markers:
        if isinstance(one, Form):
            words = one.words
        elif isinstance(one, Range):
            words += f" of {one.low:g} or more" if one.high == float("inf") else f" in {one}"
        elif isinstance(one, Length):
            words += f" of {one}"
    return words


def _words(kind: Hashable) -> str:
    if get_origin(kind) is Annotated:
        return described(kind)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return _NAMES.get(_plain(kind), "a value")


@functools.cache
def _parted(kind: Hashable) -> tuple[Hashable, tuple[Hashable, ...]]:
    """Return a type without `Annotated`, `Required` and `NotRequired`, and the markers."""
    markers: tuple[Hashable, ...] = ()
    while get_origin(kind) in (Annotated, Required, NotRequired):
        kind, *more = get_args(kind)
        markers += tuple(more)
    return kind, markers


@functools.cache
def _members(kind: Hashable) -> tuple[Hashable, ...]:
    """Return the types of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


@functools.cache
def _plain(kind: Hashable) -> str:
    """Return the name of the Python type that JSON of this type is read as."""
    origin = get_origin(kind)
    if is_typeddict(kind) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return "dict"
    found = origin or kind
    return found.__name__ if isinstance(found, type) else ""


def _is_kind(kind: Hashable, value: Json) -> bool:
    if get_origin(kind) is Literal:
        return any(type(one) is type(value) and one == value for one in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    plain = _plain(kind)
    return plain == type(value).__name__ or plain not in _NAMES  # of other types, anything is accepted


def _fulfils(marker: Hashable, value: Json) -> bool:
    if isinstance(marker, Form) and isinstance(value, str):
        return marker.accepts(value)
    if isinstance(marker, Range) and isinstance(value, int | float):
        return value in marker
    if isinstance(marker, Length) and isinstance(value, list):
        return len(value) in marker
    return True


@functools.cache
def _is_required(record: Hashable, hint: Hashable) -> bool:
    origin = get_origin(hint)
    return origin is Required or (origin is not NotRequired and bool(getattr(record, "__total__", True)))


def _below(place: str, key: str) -> str:
    shown = (key if key.isprintable() else ascii(key))[:_SHOWN]
    return f"{place}.{shown}" if place else shown


__all__ = ["Form", "MisfitError", "Shape", "check_json", "described", "fields_of", "markers_of"]

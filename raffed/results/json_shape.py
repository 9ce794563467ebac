"""Descriptions of what a JSON object must look like, as functions that can be combined.

For example, `table(many(number))` accepts {"a": [1, 2.5]}. A check receives the place of a value, such as
`methods.fedmr.trials[3].score`, and the value. It raises a MisfitError that names both if the value is of
another kind than raffed writes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from raffed.results.json_files import Json

Check: TypeAlias = Callable[[str, Json], None]

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


class MisfitError(ValueError):
    """A value does not belong in its place."""

    def __init__(self, place: str, value: Json, wanted: str) -> None:
        shown = "null" if value is None else _NAMES[type(value)]
        shown += "" if value is None or isinstance(value, dict | list) else f" ({ascii(value)[:80]})"
        super().__init__(f"{place or 'the file'} is {shown}, but must be {wanted}")


def anything(place: str, value: Json) -> None:
    """Accept any JSON, because it is checked elsewhere."""


def text(place: str, value: Json) -> None:
    if not isinstance(value, str):
        raise MisfitError(place, value, "a text")


def number(place: str, value: Json) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MisfitError(place, value, "a number")


def count(place: str, value: Json) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MisfitError(place, value, "an integer of 0 or more")


def scalar(place: str, value: Json) -> None:
    if isinstance(value, dict | list):
        raise MisfitError(place, value, "a single value")


def one_of(*values: str | int) -> Check:
    """Accept one of a few values."""

    def check(place: str, value: Json) -> None:
        if isinstance(value, bool | float | list | dict) or value not in values:
            raise MisfitError(place, value, " or ".join(map(repr, values)))

    return check


def maybe(check: Check) -> Check:
    """Accept null, or what `check` accepts."""

    def checked(place: str, value: Json) -> None:
        if value is not None:
            check(place, value)

    return checked


def many(check: Check, length: int | None = None) -> Check:
    """Accept a list whose entries `check` accepts, of the given length if there is one."""

    def checked(place: str, value: Json) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise MisfitError(place, value, "a list" if length is None else f"a list of {length}")
        for index, one in enumerate(value):
            check(f"{place}[{index}]", one)

    return checked


def table(check: Check) -> Check:
    """Accept an object with any keys, whose values `check` accepts."""

    def checked(place: str, value: Json) -> None:
        if not isinstance(value, dict):
            raise MisfitError(place, value, "an object")
        for key, one in value.items():
            check(_below(place, key), one)

    return checked


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Accept an object with the required keys, any of the optional ones, and no other."""
    checks = {**required, **(optional or {})}

    def checked(place: str, value: Json) -> None:
        if not isinstance(value, dict):
            raise MisfitError(place, value, "an object")
        for key in value:
            if key not in checks:
                raise ValueError(
                    f"{_below(place, key)} is not a key that raffed writes{_nearest(key, checks)}"
                )
        for key in required:
            if key not in value:
                raise ValueError(f"{_below(place, key)} is missing")
        for key, one in value.items():
            checks[key](_below(place, key), one)

    return checked


def _below(place: str, key: str) -> str:
    shown = key if key.isprintable() else ascii(key)
    return f"{place}.{shown[:60]}" if place else shown[:60]


def _nearest(key: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(key[:60], known, n=1)
    return f"; nearest: {near[0]}" if near else ""

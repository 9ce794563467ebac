"""Factor out what several JSON objects share, so that each is stored as its difference from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]


def shared(objects: Sequence[Json]) -> dict[str, Any]:
    """Return what all objects have in common: equal values, and the shared part of nested objects."""
    if not objects:
        return {}
    first, *rest = objects
    found: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in one for one in rest):
            continue
        values = [value, *(one[key] for one in rest)]
        if all(isinstance(one, Mapping) for one in values):
            found[key] = shared(values)
        elif all(_same(one, value) for one in values):
            found[key] = value
    return found


def difference(one: Json, common: Json) -> dict[str, Any]:
    """Return what `merged` must add to `common` to give `one`."""
    found: dict[str, Any] = {}
    for key, value in one.items():
        if key not in common:
            found[key] = value
        elif isinstance(value, Mapping) and (rest := difference(value, common[key])):
            found[key] = rest
    return found


def merged(common: Json, more: Json) -> dict[str, Any]:
    """Undo `difference`."""
    found = dict(common)
    for key, value in more.items():
        nested = isinstance(value, Mapping) and isinstance(common.get(key), Mapping)
        found[key] = merged(common[key], value) if nested else value
    return found


def _same(one: object, other: object) -> bool:
    """Return whether two values have the same JSON text; 1, 1.0 and True do not."""
    return repr(one) == repr(other)

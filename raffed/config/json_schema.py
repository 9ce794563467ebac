"""The JSON schema of a configuration, made from the declarations by which raffed itself checks it.

Editors complete and check a TOML file by it. It says what each key may be; rules between two keys are checked
when the file is read. This module imports neither torch nor Ray.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeVar

from raffed.config.declaration import KINDS, LIST, TABLE, Declaration, Json
from raffed.config.run import SECTIONS, RunConfig
from raffed.config.validation import declarations

T = TypeVar("T")
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "None": "null",
    TABLE: "object",
    LIST: "array",
}


def configuration_schema() -> dict[str, Json]:
    """Return the schema of a configuration as plain data."""
    fields = {name: _property(one) for name, one in declarations(RunConfig).items() if name not in SECTIONS}
    tables: dict[str, Json] = {
        name: {**_table(kind), "description": declarations(RunConfig)[name].doc}
        for name, kind in SECTIONS.items()
    }
    return {
        "$schema": DIALECT,
        "title": "A run of raffed",
        "type": "object",
        "properties": {**fields, **tables},
        "additionalProperties": False,
    }


def schema_text() -> str:
    """Return the schema as `raffed schema` prints it."""
    return json.dumps(configuration_schema(), indent=2, ensure_ascii=False) + "\n"


def _table(section: Callable[..., T]) -> dict[str, Json]:
    properties: dict[str, Json] = {name: _property(one) for name, one in declarations(section).items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _property(one: Declaration) -> Json:
    """Return the schema of one field. Of a type that raffed does not check, anything is accepted."""
    found: dict[str, Json] = {"description": one.doc} if one.doc else {}
    if not all(kind in KINDS for kind in one.kinds):
        return found
    kinds: list[Json] = [_kind(one, kind) for kind in one.kinds]
    return {**found, **(kinds[0] if isinstance(kinds[0], dict) and len(kinds) == 1 else {"anyOf": kinds})}


def _kind(one: Declaration, kind: str) -> dict[str, Json]:
    found: dict[str, Json] = {"type": _TYPES[kind]}
    if kind == "str" and one.choices:
        return {**found, **_words(one)}
    if kind == LIST:
        length: dict[str, Json] = {}
        if one.length is not None:
            length = {"minItems": one.length.low}
            length |= {} if one.length.high is None else {"maxItems": one.length.high}
        return {**found, "items": {"type": "integer", **_range(one)}, **length}
    return {**found, **(_range(one) if kind in ("int", "float") else {})}


def _words(one: Declaration) -> dict[str, Json]:
    if not one.words:
        return {"enum": list(one.choices)}
    word = "|".join(filter(None, one.choices))
    return {"pattern": f"^( *({word}) *(, *({word}) *)*)?$"}


def _range(one: Declaration) -> dict[str, Json]:
    if one.range is None:
        return {}
    low = "exclusiveMinimum" if one.range.open_low else "minimum"
    found: dict[str, Json] = {low: one.range.low}
    return {**found, "maximum": one.range.high} if one.range.high != float("inf") else found


__all__ = ["configuration_schema", "schema_text"]

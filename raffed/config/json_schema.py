"""The JSON schema of a configuration, made by pydantic from the types by which raffed itself checks it.

Editors complete and check a TOML file by it. It says what each key may be; rules between two keys are checked
when the file is read. This module imports neither torch nor Ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from raffed.config.run import SECTIONS, RunConfig
from raffed.config.validation import declarations


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the title of each key, which would be the key itself."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def configuration_schema() -> dict[str, Any]:
    """Return the schema of a configuration as plain data."""
    tables = {name: _table(kind, f"[{name}]") for name, kind in SECTIONS.items()}
    adapter: TypeAdapter[Any] = TypeAdapter(_table(RunConfig, "A run of raffed", tables))
    schema = adapter.json_schema(schema_generator=_WithoutTitles)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def schema_text() -> str:
    """Return the schema as `raffed schema` prints it."""
    return json.dumps(configuration_schema(), indent=2, ensure_ascii=False) + "\n"


def _table(kind: type, title: str, tables: Mapping[str, Any] | None = None) -> Any:
    """Return the type of a table of a file. Every key may be left out."""
    make: Any = TypedDict
    keys = {
        name: Annotated[(tables or {}).get(name, one.accepted()), Field(description=one.doc)]
        for name, one in declarations(kind).items()
    }
    return with_config(ConfigDict(extra="forbid", title=title))(make(kind.__name__, keys, total=False))


__all__ = ["configuration_schema", "schema_text"]

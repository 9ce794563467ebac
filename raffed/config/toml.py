"""Reading run configurations from TOML files, and the JSON schema of such files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS
from raffed.config.validation import Json, declarations
from raffed.errors import UsageError
from raffed.own.gate import note_toml

DEEPEST = 64  # largest depth of nested tables and lists, and parts of a key
_BETWEEN_KEYS = re.compile(r"[,=\[\]{}\n]")


def read_toml(path: Path) -> dict[str, Json]:
    """Read the tables of a TOML file.

    TOML is encoded in UTF-8. Editors on Windows put a byte order mark before the text, which is skipped.

    Args:
        path: The file.

    Returns:
        Name → value, with a nested mapping for every table.

    Raises:
        UsageError: The file cannot be read or is not valid TOML. The message names the file and the line.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read ({why}); give the path of a TOML file") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a TOML file: {error}; save it as UTF-8") from error
    tables = parse_toml(text, str(path))
    note_toml(path, tables)
    return tables


def parse_toml(text: str, where: str) -> dict[str, Json]:
    """Read the tables of a TOML text.

    Args:
        text: The text.
        where: Where the text came from, for the message.

    Returns:
        Name → value, with a nested mapping for every table.

    Raises:
        UsageError: The text is not valid TOML. The message names `where` and the line.
    """
    deep = f"{where}: nested too deeply: more than {DEEPEST} tables and lists in one another"
    if any(part.count(".") > DEEPEST for part in _BETWEEN_KEYS.split(text)):  # reading it would take hours
        raise UsageError(deep)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not TOML: {error}") from error
    except RecursionError as error:
        raise UsageError(deep) from error
    level: list[Json] = [tables]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _below(value)]
    if level:
        raise UsageError(deep)
    return tables


def _below(value: Json) -> Iterable[Json]:
    """Return what lies directly in a table or a list."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


# The JSON schema of a configuration, made by pydantic from the types by which raffed itself checks it.
#
# Editors complete and check a TOML file by it. It says what each key may be; rules between two keys are
# checked when the file is read.


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
        name: Annotated[(tables or {}).get(name, declared.accepted()), Field(description=declared.doc)]
        for name, declared in declarations(kind).items()
    }
    return with_config(ConfigDict(extra="forbid", title=title))(make(kind.__name__, keys, total=False))

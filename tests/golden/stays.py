"""The list of names that two minor versions keep (docs/stays.md).

`python -m tests.golden.stays` writes tests/golden/stays.txt. A line that goes is a decision, seen in review.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import typer

import raffed
from raffed.cli.app import app
from raffed.config.toml import schema_text
from raffed.results.rows import SCHEMA
from raffed.results.runfile import RUN_SCHEMA

STAYS = Path(__file__).parent / "stays.txt"
PROGRAMS = Path(__file__).parents[2] / "docs" / "programs.md"


def keys() -> Iterator[str]:
    """Yield the keys of a configuration, such as local.lr."""
    schema = json.loads(schema_text())
    for name, section in schema["properties"].items():
        yield name
        table = schema["$defs"].get(section.get("$ref", "").rpartition("/")[2], {})
        yield from (f"{name}.{key}" for key in table.get("properties", {}))


def names() -> list[str]:
    """Return the lines of the list."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    page = PROGRAMS.read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d[\d, ]*) \|", page, re.MULTILINE)
    return sorted(
        {
            *(f"public {name}" for name in raffed.__all__),
            *(
                f"option {command} {option}"
                for command, known in commands.items()
                for parameter in known.params
                for option in (*parameter.opts, *parameter.secondary_opts)
                if option.startswith("--")
            ),
            *(f"key {key}" for key in keys()),
            *(f"event {event}" for event in re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)),
            *(f"exit {code}" for line in codes for code in line.split(", ")),
            *(f"column {field.name}: {field.type}" for field in SCHEMA),
            f"format {RUN_SCHEMA}",
        }
    )


if __name__ == "__main__":
    STAYS.write_text("\n".join(names()) + "\n", encoding="utf-8")

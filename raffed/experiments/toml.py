"""Run configurations in TOML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raffed.core.errors import UsageError


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; a UsageError names the file and the line of a mistake."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text; a UsageError names `where` it stands and the line of a mistake."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not TOML: {error}") from error

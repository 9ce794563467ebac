"""Run configurations in TOML files."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

from raffed.errors import UsageError

MARKS = (  # UTF-32's begins like UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; a UsageError names the file and the line of a mistake.

    TOML is UTF-8. A byte order mark, which editors under Windows put before it, is passed over, and tells
    UTF-16 and UTF-32.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # the latter for a path with a NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read ({why}); give the path of a TOML file") from error
    encoding = next((name for mark, name in MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a TOML file: {error}; save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(
            f"{path}: not a TOML file: it holds NUL characters, as UTF-16 does; save it as UTF-8"
        )
    return parse_toml(text, str(path))


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

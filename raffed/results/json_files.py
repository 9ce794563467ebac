"""Read a JSON file that anybody may have written or damaged. The caller gets plain data of a sane size, or
one error.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.references.gate import check_inside, note_read

LARGEST = 32 * 2**20  # bytes: 100,000 rounds make a run.json of 7 MB
DEEPEST = 64  # largest depth of nested objects and lists; raffed writes fewer than 10
LARGEST_INTEGER = 2**63  # everything raffed writes fits into 64 bits
KINDS: Mapping[int, str] = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


class JsonFileError(RunFolderError):
    """A file does not hold the JSON object that it should hold. `why` is the reason without the path."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.path, self.why = path, why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class NoJsonFileError(JsonFileError):
    """The file does not exist."""


def read_json(path: Path) -> dict[str, Json]:
    """Return the JSON object in a file.

    Only a regular file is opened, because reading a named pipe would wait. A link is followed only if it
    stays inside its own folder. The result can be written again and printed: it is not nested deeper than
    DEEPEST, its texts are valid Unicode, and its numbers fit into 64 bits.

    Raises:
        NoJsonFileError: The file does not exist.
        JsonFileError: The file cannot be read, or does not hold such an object.
    """
    text = _text(path)
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise JsonFileError(path, _too_deep()) from error
    except ValueError as error:  # not JSON, or an integer with more digits than Python reads
        raise JsonFileError(path, f"is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise JsonFileError(path, f"holds a {type(found).__name__}, but must hold an object: {{...}}")
    why = _unfit(found)
    if why:
        raise JsonFileError(path, why)
    note_read(found)
    return found


def _text(path: Path) -> str:
    try:
        check_inside(path.parent, path)
        _check_file(path, path.stat())
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read(LARGEST).decode("utf-8")
    except JsonFileError:
        raise
    except RunFolderError as error:
        raise JsonFileError(path, str(error).removeprefix(f"{path}: ")) from error
    except UnicodeDecodeError as error:
        raise JsonFileError(path, f"is not UTF-8 text (byte {error.start})") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoJsonFileError(path, "there is no such file") from error
    except OSError as error:
        raise JsonFileError(path, f"cannot be read ({error.strerror})") from error


def _check_file(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise JsonFileError(
            path, f"is {KINDS.get(stat.S_IFMT(about.st_mode), 'a device')}, but must be a file"
        )
    if about.st_size > LARGEST:
        raise JsonFileError(path, f"has {about.st_size:,} bytes, but may have at most {LARGEST:,}")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting, even if it has become a named pipe by now."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _unfit(found: Json) -> str:
    """Return why a value cannot be used; empty if it can."""
    level = [found]
    for _ in range(DEEPEST):
        below: list[Json] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                below += value
            elif why := _unfit_scalar(value):
                return why
        if not below:
            return ""
        level = below
    return _too_deep()


def _unfit_scalar(value: str | int | float | bool | None) -> str:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return "holds half a character (a lone surrogate), which no text can hold"
    elif isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return "holds an integer of more than 64 bits"
    elif isinstance(value, float) and not math.isfinite(value):
        return "holds a number that is not finite (NaN, Infinity, or too large)"
    return ""


def _too_deep() -> str:
    return f"is nested too deeply: more than {DEEPEST} objects and lists in one another"


__all__ = ["Json", "JsonFileError", "NoJsonFileError", "read_json"]

"""Read a JSON file that anybody may have written or damaged. The caller gets plain data of a sane size, or
one error.

What a file may hold is declared as a `TypedDict`, and `check_json` compares it by pydantic, which takes
0.1 seconds to load, so that it is imported only then.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.own.gate import check_inside, note_read

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

LARGEST = 32 * 2**20  # bytes: 100,000 rounds make a run.json of 7 MB
DEEPEST = 64  # largest depth of nested objects and lists; raffed writes fewer than 10
LARGEST_INTEGER = 2**63  # everything raffed writes fits into 64 bits
SHOWN = 60  # characters of a value or a name in a file that a message shows
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


@dataclass(frozen=True)
class Form:
    """A text of a certain form, in a file.

    Attributes:
        words: What the text must be, as messages say it.
        accepts: Whether a text has the form.
    """

    words: str
    accepts: Callable[[str], bool]

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self._checked, handler(kind))

    def _checked(self, text: str) -> str:
        if not self.accepts(text):
            raise ValueError(f"must be {self.words}")
        return text


@dataclass(frozen=True)
class Shape:
    """Marks JSON that the program takes as it is, although its type is known: `kind`."""

    kind: Any

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.kind)


def check_json(kind: type[Mapping[str, Any]], value: Mapping[str, Json]) -> None:
    """Check what a file holds.

    Args:
        kind: A `TypedDict`. Fields that it does not declare are refused.
        value: The contents of a file.

    Raises:
        ValueError: The message names the place, such as `segments[0].from`, the value and what it must be.
    """
    from pydantic import ValidationError

    try:
        _file_adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(_one_line(error.errors(include_url=False), value, get_type_hints(kind))) from None


@functools.cache
def _file_adapter(kind: type[Mapping[str, Any]]) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter, with_config

    return TypeAdapter(with_config(ConfigDict(strict=True, extra="forbid"))(kind))


def _one_line(errors: Sequence[ErrorDetails], value: Mapping[str, Json], known: Collection[str]) -> str:
    """Return what the first error of pydantic says about the contents of a file."""
    place, first = _place(errors[0], value), errors[0]
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place, known, n=1, cutoff=0.5) if len(first["loc"]) == 1 else []
        return f"{place} is not a field that raffed writes{f' (did you mean {near[0]!r}?)' if near else ''}"
    needs = [
        re.sub("^Value error, |^(Input|List) should(?= )", lambda m: "must" if m[1] else "", one["msg"])
        for one in errors  # one for each type of a union
        if _place(one, value) == place
    ]
    return (
        f"{place or 'the file'} is {ascii(first['input'])[:SHOWN]}, but {' or '.join(dict.fromkeys(needs))}"
    )


def _place(error: ErrorDetails, value: Any) -> str:
    """Return where an error is, without the names that pydantic gives to the types of a union."""
    place = ""
    for key in error["loc"]:
        if isinstance(value, list) and isinstance(key, int):
            value, place = value[key], f"{place}[{key}]"
        elif isinstance(value, dict) and (key in value or error["type"] == "missing"):
            shown = str(key) if str(key).isprintable() else ascii(key)
            value, place = value.get(str(key)), f"{place}.{shown[:SHOWN]}"
    return place.removeprefix(".")


__all__ = ["Form", "Json", "JsonFileError", "NoJsonFileError", "Shape", "check_json", "read_json"]

"""Read files of unknown origin safely, and write files in one step without following links."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
"""What a JSON file of raffed holds. Whoever reads a field checks it."""
JsonDict: TypeAlias = dict[str, Any]
"""The same where it is made or changed."""

LARGEST = 32 * 2**20  # bytes of a JSON file
LARGEST_INTEGER = 2**63


class UnfitFileError(ValueError):
    """A file is not what it should be. The message gives the reason without the file's name."""


def read_bytes(path: Path) -> bytes:
    """Return the contents of a regular file.

    Other kinds are refused: reading a named pipe could wait for ever.
    """
    if not path.is_file():
        raise UnfitFileError(
            "is missing" if not path.exists() else "is a folder" if path.is_dir() else "is not a regular file"
        )
    return path.read_bytes()


def read_object(path: Path) -> JsonDict:
    """Return the JSON object in a file. Its numbers and texts can be computed with and printed.

    Raises:
        UnfitFileError: the file holds no such object, or is a link to a place outside its folder.
    """
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise UnfitFileError(f"leads out of its folder, to {path.resolve()}")
    return object_in(read_bytes(path))


def object_in(raw: bytes) -> JsonDict:
    """Return the JSON object in a text. Its numbers and texts can be computed with and printed.

    Raises:
        UnfitFileError: the text holds no such object.
    """
    if len(raw) > LARGEST:
        raise UnfitFileError(f"has {len(raw):,} bytes, but may have at most {LARGEST:,}")
    try:
        parsed = json.loads(
            raw.decode("utf-8"), parse_int=_integer, parse_float=_real, parse_constant=_no_number
        )
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")  # Half a surrogate pair fails here.
    except RecursionError as error:
        raise UnfitFileError("is nested too deeply") from error
    except UnicodeError as error:
        raise UnfitFileError("holds bytes that are not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise UnfitFileError(f"is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise UnfitFileError(f"holds a {type(parsed).__name__}, but must hold an object")
    return parsed


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= LARGEST_INTEGER:
        raise UnfitFileError("holds an integer of more than 64 bits")
    return int(text)


def _real(text: str) -> float:
    if not math.isfinite(float(text)):
        raise UnfitFileError("holds a number that is too large")
    return float(text)


def _no_number(text: str) -> NoReturn:
    raise UnfitFileError(f"holds {text}, which is not a number")


def as_written(raw: bytes, name: str, files: JsonObject | None) -> str:
    """Return why the bytes of a run's file are not those that the run wrote.

    The result is empty if they are, or if no hash was recorded. `files` maps the name of each file below the
    run's folder to its SHA-256, from run.json.
    """
    if files is None:
        return ""
    if name not in files:
        return "this run did not write it, run.json does not know it; remove it"
    if files[name] != hashlib.sha256(raw).hexdigest():
        return "it was changed, run.json has another hash; put back a copy"
    return ""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Open a new file beside `path` that replaces it at the end. No link of either name is followed."""
    temp = path.with_name(f".{path.stem}.tmp{path.suffix}")
    temp.unlink(missing_ok=True)
    temp.open("xb").close()
    try:
        yield temp
        temp.replace(path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8 in one step."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")

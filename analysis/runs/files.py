"""Files that anybody may have made, read without waiting and without surprise; and files written in one
step, over no link.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 32 * 2**20  # bytes of a JSON file
LARGEST_INTEGER = 2**63


class UnfitFileError(ValueError):
    """A file is not what it should be; the message says why, without the file's name."""


def read_bytes(path: Path) -> bytes:
    """The contents of a regular file; of a named pipe a reader would wait for ever."""
    if not path.is_file():
        raise UnfitFileError(
            "is missing" if not path.exists() else "is a folder" if path.is_dir() else "is no regular file"
        )
    return path.read_bytes()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, of numbers and texts that can be computed with and printed.

    Raises:
        UnfitFileError: there is none, or the file is a link to a place outside of its folder.
    """
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise UnfitFileError(f"leads out of its folder, to {path.resolve()}")
    raw = read_bytes(path)
    if len(raw) > LARGEST:
        raise UnfitFileError(f"has {len(raw):,} bytes, wanted at most {LARGEST:,}")
    try:
        found = json.loads(
            raw.decode("utf-8"), parse_int=_integer, parse_float=_real, parse_constant=_no_number
        )
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # raises for half a character
    except RecursionError as error:
        raise UnfitFileError("is nested too deeply") from error
    except UnicodeError as error:
        raise UnfitFileError("holds what is no text in UTF-8") from error
    except UnfitFileError:
        raise
    except ValueError as error:
        raise UnfitFileError(f"is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UnfitFileError(f"holds a {type(found).__name__}, wanted an object")
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= LARGEST_INTEGER:
        raise UnfitFileError("holds an integer of more than 64 bits")
    return int(text)


def _real(text: str) -> float:
    if not math.isfinite(float(text)):
        raise UnfitFileError("holds a number that is too large")
    return float(text)


def _no_number(text: str) -> NoReturn:
    raise UnfitFileError(f"holds {text}, which is no number")


def as_written(raw: bytes, name: str, files: Mapping[str, Any] | None) -> str:
    """Why the bytes of a run's file are not those that the run wrote; empty if they are, or if nothing was
    written down.

        files: name below the run's folder → SHA-256, from run.json.
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
    """A new file to write, beside `path`, whose place it takes at the end. A link of either name is not
    followed.
    """
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
    """Write a text as UTF-8, in one step."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")

"""Files of a run: JSON that is checked while it is read, folders of files, and files written whole."""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import hashlib
import math
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.own.gate import check_inside, note_read

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

# Read a JSON file that anybody may have written or damaged. The caller gets plain data of a sane size, or
# one error.
#
# What a file may hold is declared as a `TypedDict`, and `check_json` compares it by pydantic, which takes
# 0.1 seconds to load, so that it is imported only then.


LARGEST = 32 * 2**20  # bytes: 100,000 rounds make a run.json of 7 MB
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
    stays inside its own folder. The result can be written again and printed: its texts are valid Unicode, and
    its numbers are finite and fit into 64 bits.

    Raises:
        NoJsonFileError: The file does not exist.
        JsonFileError: The file cannot be read, or does not hold such an object.
    """
    from pydantic_core import from_json

    try:
        check_inside(path.parent, path)
        about = path.stat()
        check_regular(path, about)
        if about.st_size > LARGEST:
            raise JsonFileError(path, f"has {about.st_size:,} bytes, but may have at most {LARGEST:,}")
        value = from_json(path.read_bytes(), allow_inf_nan=False)
    except RunFolderError as error:
        raise JsonFileError(path, str(error).removeprefix(f"{path}: ")) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoJsonFileError(path, "there is no such file") from error
    except OSError as error:
        raise JsonFileError(path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise JsonFileError(path, f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise JsonFileError(path, f"holds a {type(value).__name__}, but must hold an object: {{...}}")
    if why := _unfit(value):
        raise JsonFileError(path, why)
    note_read(value)
    return value


def _unfit(value: Json) -> str:
    """Return which kind of number in a value cannot be used; empty if all can."""
    if isinstance(value, float) and not math.isfinite(value):
        return "holds a number that is not finite (too large)"
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return "holds an integer of more than 64 bits"
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, map(_unfit, below)), "")


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
        re.sub("^Value error, |^(Input|List) should(?= )", lambda m: "must" if m[1] else "", error["msg"])
        for error in errors  # one for each type of a union
        if _place(error, value) == place
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


# Check a folder that may come from a stranger: it must hold files and folders only, and nothing may lead
# out of it.
#
# raffed and its actors write, rename and remove files all over a run's folder. So the folder is checked
# once, before a command works in it. A link to a place outside is refused, and so is a named pipe, for
# which a reader would wait for ever.


def check_tree(folder: Path) -> None:
    """Raise a RunFolderError unless everything below a folder is a file, a folder, or a link to one of these
    below it.

    `folder` itself may be a link, because the user has chosen it on the command line. It need not exist.
    """
    try:
        for place, folders, files in os.walk(folder, onerror=_raise_unless_gone):
            for path in (Path(place, name) for name in (*folders, *files)):
                with contextlib.suppress(FileNotFoundError):  # a command at work here may have removed it
                    _check_entry(folder, path, path.lstat())
    except OSError as error:
        raise RunFolderError(
            f"{error.filename or folder}: cannot be read ({error.strerror}); its owner can allow it"
        ) from error


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _check_entry(folder: Path, path: Path, about: os.stat_result) -> None:
    if stat.S_ISLNK(about.st_mode):
        check_inside(folder, path)
    elif not stat.S_ISDIR(about.st_mode):
        check_regular(path, about)


def check_regular(path: Path, about: os.stat_result) -> None:
    """Raise a RunFolderError unless `about` describes a file with contents of its own."""
    if not stat.S_ISREG(about.st_mode):
        what = KINDS.get(stat.S_IFMT(about.st_mode), "a device")
        raise RunFolderError(f"{path}: is {what}, but must be a file; remove it")


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file. A named pipe, for which a reader would wait, is a RunFolderError."""
    check_regular(path, path.stat())
    return path.read_bytes()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of the bytes of a file.

    Raises:
        OSError, RunFolderError: The file does not exist or cannot be read.
    """
    return hashlib.sha256(read_regular(path)).hexdigest()


# Write files so that they are complete or do not exist.
#
# A file gets a temporary name, is flushed with fsync and renamed; then its folder is flushed.


_TEMP = ".tmp"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Return whether an error means that no space or no quota is left."""
    if isinstance(error, shutil.Error):  # of copytree, which only keeps the texts of the errors
        return any(os.strerror(code) in str(error) for code in _FULL)
    return isinstance(error, OSError) and error.errno in _FULL


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` in one step when the block succeeds.

    If the block raises, `path` is unchanged and the temporary file is deleted. If the process is killed,
    `path` is unchanged and a hidden file `.NAME.tmp` remains, which `clean` removes. There may be one writer
    per path. If `path` or the temporary name is a link, the link is replaced, and the file it points to is
    not touched.
    """
    temp = path.with_name(f".{path.name}{_TEMP}")
    create(temp)
    try:
        yield temp
        sync_file(temp)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """Remove a folder if the block fails: on a full disk its space is needed, and the work is repeated."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def create(path: Path) -> None:
    """Make an empty file that belongs to this process, in place of any file or link of that name.

    Programs open a file by its name to write to it, and would follow a link that a stranger left there. After
    this call the name belongs to a new file.

    Raises:
        RunFolderError: The name is that of a folder.
    """
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError) as error:  # macOS raises PermissionError for a folder
        if not path.is_dir():
            raise
        raise RunFolderError(f"{path}: is a folder, but must be a file; remove it") from error
    path.open("xb").close()


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, in one step."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")


def sync_file(path: Path) -> None:
    """Make sure that what was written to a file survives a loss of power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Make sure that a folder and everything below it survive a loss of power.

    Linux's sync(2) waits until everything is written and took 0.2 ms per file (1,000 client states of 250 kB
    on one disk). fsync of each single file took 5 ms.
    """
    if platform.system() == "Linux":
        os.sync()
        return
    for path in sorted(folder.rglob("*")):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make sure that renames and deletions in a folder survive a loss of power.

    On systems other than POSIX nothing is done, because they cannot open a folder.
    """
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean(folder: Path, pattern: str) -> None:
    """Remove the temporary files that a killed writer left, of names that match the glob `pattern`."""
    for temp in folder.glob(f".{pattern}{_TEMP}"):
        temp.unlink(missing_ok=True)

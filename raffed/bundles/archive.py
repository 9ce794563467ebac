"""The zip of a bundle: written with the same bytes from the same contents, read as if a stranger had made it.

Members are stored and not compressed. So the bytes do not depend on a library of compression, and no small
file can claim a large one. Most of a bundle is Parquet, which is compressed in itself.
"""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from raffed.budget import allow
from raffed.errors import UsageError
from raffed.own.gate import is_below
from raffed.results.atomic import replacing
from raffed.results.json_files import KINDS, LARGEST
from raffed.results.tree import check_regular

BUNDLE_FILE: Final = "bundle.json"
LOCK_FILE: Final = "environment.txt"
README_FILE: Final = "README.md"
RESULTS: Final = "results"
CODE: Final = "code"
TRACES: Final = "traces"  # files of `clock.trace`, named by their SHA-256
MOST_MEMBERS = 20_000
LONGEST_NAME = 1000  # characters
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold; a bundle does not say when it was made
_MODE = stat.S_IFREG | 0o644
_UNIX = 3
_KNOWN = re.compile(
    rf"{BUNDLE_FILE}|{LOCK_FILE}|{README_FILE}"
    rf"|{RESULTS}/(.+/)?(run\.json|sweep\.json|item\.json|partition\.npz|metrics/part-\d+-\d+\.parquet)"
    rf"|{CODE}/[0-9a-f]{{12}}/(.+/)?[^/]+\.py"
    rf"|{TRACES}/[0-9a-f]{{64}}\.csv"
)


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write the members into a new zip, in the order of their names, in one step.

    Args:
        path: The new file.
        members: Name → bytes. Equal members give equal bytes.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            about = zipfile.ZipInfo(name, _DATE)
            about.create_system, about.external_attr = _UNIX, _MODE << 16
            archive.writestr(about, members[name])


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the members of a bundle. Nothing is written.

    Raises:
        UsageError: The file is not a zip, or holds what `raffed bundle` does not write: a link, a path that
            leads out of a folder, a compressed or encrypted member, a file of another kind, too much of it.
    """
    try:
        check_regular(path, path.stat())
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_all(path, members)
            return {one.filename: archive.read(one) for one in members}
    except UsageError:
        raise
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file; give the zip that `raffed bundle` wrote") from error
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot be read as a zip ({error}); fetch the bundle again") from error


def _check_all(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Check the list of members against what a bundle may hold, before any of them is read."""
    if len(members) > MOST_MEMBERS:
        raise _refused(path, f"it has {len(members)} members, and a bundle has at most {MOST_MEMBERS}")
    for why in _problems(members):
        raise _refused(path, why)
    claimed = sum(one.file_size for one in members)
    if claimed > path.stat().st_size:
        raise _refused(path, f"its members claim {claimed:,} bytes, more than the file has")
    allow(claimed, str(path))
    if BUNDLE_FILE not in {one.filename for one in members}:
        raise _refused(path, f"it has no {BUNDLE_FILE}")


def _problems(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    """Yield what a bundle may not hold, one sentence for each member that is wrong."""
    seen: set[str] = set()
    for one in members:
        name = ascii(one.orig_filename)[:100]
        kind = stat.S_IFMT(one.external_attr >> 16)
        if not is_below(one.orig_filename):
            yield f"the member {name} leads out of the folder, or has a name that systems read differently"
        elif kind not in (0, stat.S_IFREG):
            yield f"the member {name} is {KINDS.get(kind, 'a device')}"
        elif not _KNOWN.fullmatch(one.filename):
            yield f"the member {name} is not a file that a bundle holds"
        elif one.filename.casefold() in seen:
            yield f"the member {name} is there twice"
        elif (
            one.flag_bits & 1 or one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size
        ):
            yield f"the member {name} is compressed or encrypted"
        elif one.filename.endswith(".json") and one.file_size > LARGEST:
            yield f"the member {name} has {one.file_size:,} bytes, and may have at most {LARGEST:,}"
        seen.add(one.filename.casefold())


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a bundle as `raffed bundle` writes it: {why}; nothing was unpacked")


__all__ = ["read_archive", "write_archive"]

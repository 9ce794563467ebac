"""One budget of memory for what is unpacked or loaded. A file that anybody may have made is refused by
arithmetic, before it takes memory.
"""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.errors import UsageError

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

CELL = 8  # bytes of a number in a table, and of the place of a text that stands in many rows
SHARE = 0.5  # of the free memory may be taken by one thing that is loaded
USUAL = 2.0**33  # bytes that count as free where the system does not say it
# For cgroup versions 2 and 1: files of the limit and of the use, then file and entry of the cache in it
CGROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)

# Words of the loader and of libraries
UNMAPPED = r"failed to map segment|cannot allocate memory|out of memory|can't allocate memory"
ADVICE = "free some memory or ask for more of it; a batch system has an option for it (Slurm: --mem)"


def allow(size: float, what: str, error: type[UsageError] = UsageError) -> None:
    """Refuse what would take more than SHARE of the free memory.

    Args:
        size: Bytes that it takes once it is unpacked or built, by what is known beforehand.
        what: What it is, for the message.
        error: What is raised.

    Raises:
        UsageError: It is too large.
    """
    if size <= 2**24:  # which needs no look at the system
        return
    free = free_memory()
    limits = (USUAL if free is None else free, _soft_limit("RLIMIT_AS"), _soft_limit("RLIMIT_DATA"))
    most = min(limit for limit in limits if limit is not None)
    if size > SHARE * most:
        raise error(
            f"{what} would take {size / 2**30:,.1f} GiB of memory, but may take half of what is free, "
            f"{SHARE * most / 2**30:,.1f} GiB; make it smaller, or use a machine with more memory"
        )


def allow_table(about: FileMetaData, what: str, error: type[UsageError] = UsageError) -> None:
    """Apply `allow` to the rows of a Parquet file, by what it says about itself."""
    unpacked = sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
    allow(max(unpacked, 0) + CELL * about.num_rows * about.num_columns, what, error)


def check_file(path: Path, error: type[UsageError] = UsageError) -> None:
    """Refuse what is not a regular file, such as a named pipe or a device, and one that is too large to read.

    Raises:
        UsageError: It is.
        FileNotFoundError: There is no such file.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise error(f"{path} is not a regular file; give a file that holds what is to be read")
    allow(about.st_size, str(path), error)


def file_bytes(setting: str, file: str, advice: str) -> bytes:
    """Return the contents of a file that a setting names.

    Args:
        setting: The field of the configuration, for the message.
        file: Its value.
        advice: What to do if the file cannot be read.

    Raises:
        UsageError: It cannot be read. A named pipe or a device is refused, because reading may never end.
    """
    try:
        check_file(Path(file))
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: the name holds a zero byte, or check_file's
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"{setting} = {file!r}: {why}; {advice}") from error


def free_memory(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> float | None:
    """Return how many bytes of memory this process can still take, or None if it cannot be found out.

    It is what the machine has available, within the limit of the container (cgroup version 2 or 1). The
    container's file cache counts as free. Only Linux says it.
    """
    free = _entry(Path(meminfo), "MemAvailable:")
    if free is None:
        return None
    free *= 1024
    for limit, used, counts, cache in CGROUPS:
        most, now = _number(Path(cgroup) / limit), _number(Path(cgroup) / used)
        if most is not None and now is not None:
            free = min(free, max(most - now + (_entry(Path(cgroup) / counts, cache) or 0.0), 0.0))
    return free


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is no such limit, or it is "max"
        return None


def _entry(path: Path, name: str) -> float | None:
    """Return the number behind `name` in a file of lines "name number ..."."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)


def _soft_limit(name: str) -> int | None:
    """Return a limit of this process in bytes, or None if there is none."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(getattr(resource, name))
    return None if limit == resource.RLIM_INFINITY else limit


def no_memory(error: BaseException) -> str | None:
    """Return a message if an error was caused by a lack of memory, or None for other errors."""
    if not isinstance(error, MemoryError) and not re.search(UNMAPPED, str(error), re.IGNORECASE):
        return None
    return f"no memory is left ({_first_line(error)}); {ADVICE}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]

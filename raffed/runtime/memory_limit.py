"""Report in one line that there is too little memory for this process, before Ray is started."""

from __future__ import annotations

import re
import sys

from raffed.errors import UsageError

# Words of the loader and of libraries
UNMAPPED = r"failed to map segment|cannot allocate memory|out of memory|can't allocate memory"
ADVICE = "free some memory or ask for more of it; a batch system has an option for it (Slurm: --mem)"


def address_limit() -> int | None:
    """Return how many bytes this process may map (`ulimit -v`, or a batch system), or None if unlimited."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def check_room() -> None:
    """If a limit is set, check that torch can be loaded.

    Ray's actors would only find out half a minute later.

    Raises:
        UsageError: There is too little memory to load torch.
    """
    if address_limit() is None:
        return
    try:
        import torch  # noqa: F401 (it is loaded sooner or later)
    except (ImportError, MemoryError, OSError) as error:
        if (why := no_memory(error)) is None:
            raise
        raise UsageError(why) from error


def no_memory(error: BaseException) -> str | None:
    """Return a message if an error was caused by a lack of memory, or None for other errors."""
    if not isinstance(error, MemoryError) and not re.search(UNMAPPED, str(error), re.IGNORECASE):
        return None
    limit = address_limit()
    if limit is None:
        return f"no memory is left ({_first_line(error)}); {ADVICE}"
    much = f"{limit / 2**30:.1f} GiB of memory"
    return (
        f"this process may map {much} (ulimit -v), which is too little ({_first_line(error)}); raise it: "
        f"ulimit -v unlimited"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]

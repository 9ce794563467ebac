"""Too little memory for this process to load what it needs: said in a line, before Ray is started beside
it.
"""

from __future__ import annotations

import re
import sys

from raffed.errors import UsageError

# Of loader and libraries
UNMAPPED = r"failed to map segment|cannot allocate memory|out of memory|can't allocate memory"
ADVICE = "free some memory or ask for more of it; a batch system has an option for it (Slurm: --mem)"


def address_limit() -> int | None:
    """How many bytes this process may map, set by `ulimit -v` or a batch system; None if as many as it
    likes.
    """
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def check_room() -> None:
    """Where a limit is set: that torch can be loaded. A UsageError if not; Ray's actors would find out
    half a minute later.
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
    """What to say of an error that comes from want of memory; None of any other."""
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

"""Why an actor was lost or failed: it could not start, it ran out of memory, or something else."""

from __future__ import annotations

import re

from ray.exceptions import RayActorError

# Words of Python, of CUDA, and of torch's allocator
NO_MEMORY = "MemoryError|out of memory|can't allocate memory"


def why_not_started(error: RayActorError) -> str | None:
    """Return the error that an actor raised while it was made, as its type and the first line of its message.

    Returns None if the actor ended for another reason. Ray keeps only the text. For each error of a chain,
    this is a line `ray::Class.__init__() (pid=…)`, then indented frames, then the error.
    """
    if not error.actor_init_failed:
        return None
    lines = str(error).splitlines()
    last = max(
        (number for number, line in enumerate(lines) if "ray::" in line and "(pid=" in line), default=-1
    )
    told = [line.strip() for line in lines[last + 1 :] if line.strip() and not line[0].isspace()]
    return told[0] if told else lines[-1].strip()


def out_of_memory(error: Exception) -> bool:
    """Return whether Ray's monitor or CUDA reported a lack of memory.

    An actor that was simply killed is not a sign of it.
    """
    if isinstance(error, RayActorError) and (why := why_not_started(error)) is not None:
        return re.search(NO_MEMORY, why, re.IGNORECASE) is not None
    cause = getattr(error, "cause", None)
    named = {type(one).__name__ for one in (error, cause)}
    return (
        bool(named & {"OutOfMemoryError", "MemoryError"})
        or "memory monitor" in str(error)
        or "due to OOM" in str(error)
    )


def memory_line(error: Exception) -> str:
    """Return the last line of an error's text that is about memory, or the error's type."""
    lines = [line.strip() for line in str(error).splitlines() if "memory" in line.lower()]
    return lines[-1] if lines else type(error).__name__


__all__ = ["memory_line", "out_of_memory", "why_not_started"]

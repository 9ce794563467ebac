"""The files of speeds (`clock.trace`) in a bundle. Without them a run cannot be executed again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from raffed.bundles.archive import TRACES
from raffed.bundles.scrub import trace_name
from raffed.config.clock import Clock
from raffed.errors import UsageError


def trace_member(clock: Clock) -> dict[str, bytes]:
    """Return the trace of a run for the bundle: name → bytes. It is empty for a run without one.

    Args:
        clock: The run's clock.

    Raises:
        UsageError: The file is gone or has changed since the run.
    """
    if not clock.trace:
        return {}
    try:
        data = Path(clock.trace).read_bytes()
    except OSError as error:
        raise UsageError(f"{clock.trace}: cannot be read ({error.strerror}); put the file back") from error
    if hashlib.sha256(data).hexdigest() != clock.trace_sha256:
        raise UsageError(f"{clock.trace} has changed since the run was made; put the earlier version back")
    return {trace_name(clock.trace_sha256): data}


def clock_here(clock: Clock, out: Path) -> Clock:
    """Return a clock that reads its trace from the folder of a replay.

    Raises:
        UsageError: The bundle does not hold the trace.
    """
    if not clock.trace:
        return clock
    place = out / trace_name(clock.trace_sha256)
    if not re.fullmatch(r"[0-9a-f]{64}", clock.trace_sha256) or not place.is_file():
        raise UsageError(
            f"the bundle has no file of speeds in {TRACES}/ for clock.trace; bundle the run again"
        )
    return replace(clock, trace=str(place.absolute()))


__all__ = ["clock_here", "trace_member"]

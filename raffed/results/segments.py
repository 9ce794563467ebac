"""The segments of a run in run.json: one for each time that the run was begun or resumed.

A segment says what computed its rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from raffed.results.runfile import RunContents, Segment

log = logging.getLogger(__name__)
DECIDE = (
    "machine",
    "processor",
    "vectors",
    "linear",
    "gpu",
)  # the parts of the hardware that may change bits


def up_to(segments: Sequence[Segment], done: int) -> list[Segment]:
    """Return the segments of a run's first `done` rounds. Rounds after that will be computed again.

    Rounds later than the end of the last segment belong to it: the run was killed before it could record
    them.
    """
    *earlier, last = segments
    whole = [*earlier, _ending(last, max(last["to"], done))]
    return [_ending(one, min(one["to"], done)) for one in whole if one["from"] <= min(one["to"], done)]


def _ending(segment: Segment, to: int) -> Segment:
    """Return a copy of a segment with another last round."""
    changed = segment.copy()
    changed["to"] = to
    return changed


def difference(before: Segment, after: Segment) -> str:
    """Return what differs between two segments and may change bits, such as `torch 2.14.1 → 2.15.0, …`.

    What one of them does not record counts as equal.
    """
    pairs = {
        **{name: (before["versions"].get(name), new) for name, new in after["versions"].items()},
        **{name: (before["hardware"].get(name), after["hardware"].get(name)) for name in DECIDE},
        **{name: (old[:8], new[:8]) for name, (old, new) in after.get("accepted", {}).items()},
    }
    return ", ".join(
        f"{name} {old} → {new}" for name, (old, new) in pairs.items() if old and new and old != new
    )


def said_in(about: RunContents) -> list[tuple[str, str]]:
    """Return the warnings about a run's folder from each time that the run was resumed: when, and
    the line.
    """
    return [(one["started"], text) for one in about["segments"] for text in one["said"]]


def warn_anew(about: RunContents, told: list[tuple[str, str]]) -> None:
    """Log the warnings about the folder that are not in `told` yet, and add them there."""
    for one in said_in(about):
        if one not in told:
            log.warning("%s", one[1])
            told.append(one)

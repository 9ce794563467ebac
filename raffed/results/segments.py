"""The segments of a run in run.json: one for each time that it was begun or resumed, with what computed
its rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)
Segment = dict[str, Any]
DECIDE = (
    "machine",
    "processor",
    "vectors",
    "linear",
    "gpu",
)  # the parts of the hardware that bits may depend on


def segments_of(about: Mapping[str, Any]) -> list[Segment]:
    """The segments that run.json holds. A run of before there were any is one segment, by what began it."""
    if "segments" in about:
        return list(about["segments"])
    began = {
        "started": about.get("started", "unknown"),
        "versions": about["versions"],
        "hardware": about.get("hardware", {}),
    }
    return [{"from": 1, "to": about["rounds_done"], **began, "said": []}]


def up_to(segments: Sequence[Segment], done: int) -> list[Segment]:
    """The segments behind a run's first `done` rounds: those of rounds that will be computed again are gone.
    Rounds later than the last segment says are its own: it was killed before it could write that down.
    """
    *earlier, last = segments
    whole = [*earlier, {**last, "to": max(last["to"], done)}]
    return [{**one, "to": min(one["to"], done)} for one in whole if one["from"] <= min(one["to"], done)]


def difference(before: Segment, after: Segment) -> str:
    """What differs between two segments of what bits may depend on, `torch 2.14.1 → 2.15.0, …`; what one of
    them does not say counts as equal.
    """
    pairs = {
        **{name: (before["versions"].get(name), new) for name, new in after["versions"].items()},
        **{name: (before["hardware"].get(name), after["hardware"].get(name)) for name in DECIDE},
    }
    return ", ".join(
        f"{name} {old} → {new}" for name, (old, new) in pairs.items() if old and new and old != new
    )


def said_in(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was said of a run's folder whenever the run was resumed: when, and the line."""
    return [(one["started"], text) for one in segments_of(about) for text in one["said"]]


def warn_anew(about: Mapping[str, Any], told: list[tuple[str, str]]) -> None:
    """Warn of what was said of the folder since `told`, and add it there."""
    for one in said_in(about):
        if one not in told:
            log.warning("%s", one[1])
            told.append(one)

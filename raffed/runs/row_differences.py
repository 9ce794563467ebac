"""Which metrics differ between the rows that a run has recorded and the same rounds executed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from raffed.results.writer import rows_sha256

if TYPE_CHECKING:
    import pyarrow as pa


def row_difference(recorded: pa.Table, again: pa.Table) -> str:
    """The difference between the rows of one round and the same rows made again; empty if equal."""
    had, has = _by_metric(recorded), _by_metric(again)
    parts = {
        "other values of": [name for name in had if name in has and had[name] != has[name]],
        "the folder has no rows of": [name for name in has if name not in had],
        "only the folder has rows of": [name for name in had if name not in has],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)


def difference_notes(found: Mapping[int, str]) -> tuple[str, ...]:
    """One line for each difference, with the rounds that have it. found: round → difference.

    >>> difference_notes({1: "other values of loss", 2: "other values of loss"})
    ('metric rows of round 1, 2: other values of loss',)
    """
    rounds: dict[str, list[int]] = {}
    for number, text in found.items():
        if text:
            rounds.setdefault(text, []).append(number)
    return tuple(
        f"metric rows of round {', '.join(map(str, numbers))}: {text}" for text, numbers in rounds.items()
    )


def _by_metric(rows: pa.Table) -> dict[str, str]:
    """Metric → SHA-256 of its rows, by name."""
    names = sorted(set(rows["metric"].to_pylist()))
    return {name: rows_sha256(rows.filter(pc.equal(rows["metric"].cast("string"), name))) for name in names}

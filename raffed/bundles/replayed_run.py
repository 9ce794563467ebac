"""Compare a run that was executed again with what its bundle recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from raffed.bundles.opening import OpenedRun
from raffed.config.run import RunConfig
from raffed.results.run_contents import CodeRecord, RunContents
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics, rows_sha256
from raffed.runs.certificate import VerificationCheck
from raffed.runs.code_record import changes
from raffed.runs.row_differences import row_difference
from raffed.runs.verify import recorded_hashes

NAMED: Final = (
    "method",
    "dataset",
    "partition",
)  # columns with names, which may be other ones on this machine


@dataclass(frozen=True)
class RunComparison:
    """The checks of one run over its first rounds, and notes about differences."""

    rounds: int
    checks: tuple[VerificationCheck, ...]
    notes: tuple[str, ...]


def compared(recorded: OpenedRun, place: Path, config: RunConfig) -> RunComparison:
    """Return what is equal between a recorded run and the same run executed again.

    Args:
        recorded: The run of the bundle.
        place: Folder of the run that was executed now.
        config: The configuration with which it was.
    """
    old, new = recorded.about, read_run(place)
    done, whole = int(new["rounds_done"]), new["state"] == "finished"
    rows, again = _rows(recorded.folder, done, whole), _rows(place, done, whole)
    if config.data != recorded.config.data:
        again = _renamed(again, rows)
    difference = row_difference(rows, again)
    checks = [
        *_inputs(old, new),
        VerificationCheck("rows", rows_sha256(rows), rows_sha256(again), done),
        *_weights(old["round_hashes"], recorded_hashes(place, new)),
        *(VerificationCheck(name, old["hashes"][key], new["hashes"][key]) for name, key in ENDS if whole),
    ]
    notes = [f"metric rows: {difference}"] if difference else []
    return RunComparison(done, tuple(checks), (*notes, *_code_notes(old, new)))


ENDS: Final = (("client states", "vaults"), ("final weights", "weights"))


def _inputs(old: RunContents, new: RunContents) -> Iterator[VerificationCheck]:
    """Yield the checks of what a run begins with: partition, data and code."""
    yield VerificationCheck("partition", old["partition_sha256"], new["partition_sha256"])
    if "data_sha256" in old:
        yield VerificationCheck("data", old["data_sha256"], str(new.get("data_sha256", "")))
    if "code" in old:
        yield VerificationCheck("code", _digest(old["code"]), _digest(new.get("code", [])))


def _digest(records: Sequence[CodeRecord]) -> str:
    lines = sorted(
        {f"{one['role']} {name} {digest}" for one in records for name, digest in one["files"].items()}
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _code_notes(old: RunContents, new: RunContents) -> tuple[str, ...]:
    found: Mapping[str, list[str]] = changes(old.get("code", []), new.get("code", []))
    return tuple(f"other code: {name}" for name in found)


def _weights(old: Sequence[str], new: Sequence[str]) -> Iterator[VerificationCheck]:
    """Yield the check of the weights after the first round that differs, or else after the last one."""
    pairs = list(zip(old, new, strict=False))
    if not pairs:
        return
    other = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), len(pairs))
    yield VerificationCheck("weights", *pairs[other - 1], other)


def _rows(folder: Path, rounds: int, whole: bool) -> pa.Table:
    """Return the rows of a run's first rounds, or all of them."""
    rows = read_metrics(folder)
    return rows if whole else rows.filter(pc.less_equal(rows["round"], rounds))


def _renamed(rows: pa.Table, like: pa.Table) -> pa.Table:
    """Return rows with the recorded names of data and split, which a replay reads from other places."""
    for name in NAMED:
        words = like[name].cast(pa.string()).unique().to_pylist()
        if len(words) == 1:
            column = pa.array(words * rows.num_rows, pa.string()).cast(rows.schema.field(name).type)
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows


__all__ = ["RunComparison", "compared"]

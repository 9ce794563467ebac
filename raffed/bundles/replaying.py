"""Execute the runs of a bundle again, and say what is equal."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from raffed.bundles.archive import CODE, RESULTS, TRACES, clock_here, place_in
from raffed.bundles.opening import OpenedRun, opened
from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.data.array_cache import CACHED
from raffed.data.own_data import load_own
from raffed.errors import RunFolderError, UsageError
from raffed.own import gate
from raffed.own.located import hashes_at, located
from raffed.own.resolve import install
from raffed.results.lock import check_can_be_made, make_folder
from raffed.results.runfile import CodeRecord, RunContents, read_run, versions, write_json
from raffed.results.writer import read_metrics, rows_sha256
from raffed.runs.code_record import changes
from raffed.runs.events import RoundEvent
from raffed.runs.integrity import PARTITION
from raffed.runs.run import run
from raffed.runs.verify import recorded_hashes, row_difference
from raffed.runs.verify_files import VerificationCheck
from raffed.runtime.own_code import references_in

# Compare a run that was executed again with what its bundle recorded.


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


RECORDED: Final = "recorded"
AGAIN: Final = "again"
REPLAY_FILE: Final = "replay.json"
SPLIT_FILE: Final = "file:"
Watch = Callable[[str, RoundEvent], None]


@dataclass(frozen=True)
class ReplayedRun:
    """The comparison of one run: its name, the rounds executed, the checks, and what explains differences."""

    name: str
    rounds: int
    checks: tuple[VerificationCheck, ...]
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay.

    Attributes:
        folder: Where the unpacked results (`recorded`) and the new ones (`again`) lie.
        runs: One comparison for each run.
        seconds: How long it took.
    """

    folder: Path
    runs: tuple[ReplayedRun, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether everything that was compared has the recorded bits."""
        return all(one.ok for one in self.runs)

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON holds it."""
        runs = [
            {
                **asdict(one),
                "ok": one.ok,
                "checks": [{**asdict(check), "ok": check.ok} for check in one.checks],
            }
            for one in self.runs
        ]
        return {"folder": str(self.folder), "ok": self.ok, "seconds": self.seconds, "runs": runs}


def replay(
    archive: Path,
    out: Path,
    rounds: int = 0,
    only: Sequence[str] = (),
    data_root: str | None = None,
    trust_code: bool = False,
    watch: Watch | None = None,
) -> Replay:
    """Execute the runs of a bundle again in a new folder. `raffed.replay` explains the arguments."""
    began = time.monotonic()
    if rounds < 0:
        raise UsageError(f"rounds = {rounds} is below 0; give a number of rounds, or 0 for all")
    _check_free(out)
    with opened(archive) as found:
        chosen = found.chosen(only)
        _check_trust(found.top, chosen, trust_code)
        _check_bits(chosen)
        _settle(found.top, out)
    runs = []
    for one in chosen:
        here = replace(one, folder=out / RECORDED / one.name)
        for record in here.about.get("code", []):
            install(place_in(out, record), record["reference"])
        config = replace(_here(here, data_root), clock=clock_here(here.config.clock, out))
        runs.append(_again(here, config, out / AGAIN / one.name, rounds, watch))
    outcome = Replay(out, tuple(runs), time.monotonic() - began)
    write_json(out / REPLAY_FILE, {**outcome.as_dict(), "folder": ".", "versions": versions()})
    return outcome


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunFolderError(f"{out} exists and is not an empty folder; choose another --out")
    check_can_be_made(out)


def _check_trust(top: Path, runs: Sequence[OpenedRun], trust_code: bool) -> None:
    """Refuse to execute code that a bundle brings or names, unless the user has said that it may run."""
    for one in runs:
        records = {record["reference"]: record for record in one.about.get("code", [])}
        for reference in one.code():
            record = records.get(reference)
            if record is None and reference in references_in(one.config).values():
                raise UsageError(
                    f"{one.name}: {reference} is code, and the bundle holds no record of it; bundle it again"
                )
            place = place_in(top, record) if record else located(reference.rpartition(":")[0])
            files = record["files"] if record else hashes_at(place) if place else {}
            if trust_code:
                gate.trust(gate.hashes_of(reference, place, files))
            gate.check_trusted(reference, place, files)


def _check_bits(runs: Sequence[OpenedRun]) -> None:
    """Refuse runs whose bits this process does not compute, before a file of the replay is written.

    The command line then begins the replay of portable runs again in another environment.
    """
    kinds = {one.config.numerics.bits for one in runs}
    if len(kinds) > 1:
        raise UsageError(
            "some runs of the bundle have portable bits and others do not, and one process computes only one "
            "kind; replay them one after the other, each with --run NAME and an --out of its own"
        )
    for bits in kinds:
        check_set(bits)


def _settle(top: Path, out: Path) -> None:
    """Move the unpacked results, code and traces to the folder of the replay."""
    make_folder(out)
    shutil.move(top / RESULTS, out / RECORDED)
    for name in (CODE, TRACES):
        if (top / name).exists():
            shutil.move(top / name, out / name)


def _again(
    recorded: OpenedRun, config: RunConfig, place: Path, rounds: int, watch: Watch | None
) -> ReplayedRun:
    done = 0

    def count(event: RoundEvent) -> None:
        nonlocal done
        done = event.round
        if watch is not None:
            watch(recorded.name, event)

    run(config, place, watch=count, stop=lambda: 0 < rounds <= done)
    outcome = compared(recorded, place, config)
    here = versions()
    there = recorded.about["versions"]
    differs = tuple(
        f"{name} {there.get(name)} → {here[name]}" for name in here if there.get(name) != here[name]
    )
    return ReplayedRun(recorded.name, outcome.rounds, outcome.checks, outcome.notes, differs)


def _here(recorded: OpenedRun, data_root: str | None) -> RunConfig:
    """Return the configuration for this machine: serial, without downloads, with the bundle's own partition.

    Arrays of the user's own are taken by their hash, so that other data of the same name are refused.
    """
    config, sha256 = recorded.config, recorded.about.get("data_sha256", "")
    data = replace(config.data, root=data_root, download=False)
    if sha256:
        load_own(data.dataset, sha256)
        data = replace(data, dataset=f"{CACHED}{sha256}")
    if data.split.startswith(SPLIT_FILE):
        data = replace(data, split=f"{SPLIT_FILE}{(recorded.folder / PARTITION).absolute()}")
    given = config.runtime
    runtime = Runtime(execution="serial", threads=given.threads, gpu_fraction=given.gpu_fraction)
    return replace(config, data=data, runtime=runtime)

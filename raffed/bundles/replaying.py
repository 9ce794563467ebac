"""Open a bundle, execute its runs again, and say what is equal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from raffed.bundles.archive import (
    BUNDLE_FILE,
    CODE,
    RESULTS,
    TRACES,
    check_code_files,
    clock_here,
    place_in,
    read_archive,
    write_members,
)
from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Json, Length
from raffed.data.array_cache import CACHED
from raffed.data.importers.reference import parse_reference
from raffed.data.own_data import is_own, load_own
from raffed.data.partition_file import Partition
from raffed.errors import RaffedError, RunFolderError, UsageError, check_choice
from raffed.methods.authors import is_authors
from raffed.own import gate
from raffed.own.gate import note_read, within
from raffed.own.located import hashes_at, located
from raffed.own.resolve import install
from raffed.results import runfile
from raffed.results.files import Shape, check_json, check_tree, removed_on_failure
from raffed.results.lock import make_folder
from raffed.results.sweep_file import read_sweep
from raffed.results.writer import read_metrics, rows_sha256, with_values, without_client_losses
from raffed.runs.code_record import changes, check_engine
from raffed.runs.events import RoundEvent
from raffed.runs.folder import check_unedited, run_config
from raffed.runs.integrity import PARTITION, check_finished
from raffed.runs.run import run
from raffed.runs.verify import recorded_hashes, row_difference
from raffed.runs.verify_files import VerificationCheck
from raffed.runtime.run_method import references_in
from raffed.scratch import scratch_folder

# Open a bundle that may come from anybody: it is checked before anything lies where it was asked for.


class BundleContents(TypedDict):
    """The whole contents of bundle.json."""

    schema: Literal[1]
    kind: str
    raffed: str
    commit: str | None
    record: str
    runs: Annotated[list[runfile.Name], Length(1)]
    left_out: list[str]
    files: Annotated[dict[str, Json], Shape(dict[runfile.Name, runfile.Sha256])]


@dataclass(frozen=True)
class OpenedRun:
    """One run of a bundle: its name, its unpacked folder, its run.json, and its configuration."""

    name: str
    folder: Path
    about: runfile.RunContents
    config: RunConfig

    def code(self) -> list[str]:
        """Return the references of the configuration whose code would be executed."""
        named = list(references_in(self.config).values())
        dataset = self.config.data.dataset
        code = is_own(dataset) and not dataset.startswith(CACHED) and parse_reference(dataset) is None
        return [*named, *([dataset] if code else [])]


@dataclass(frozen=True)
class OpenedBundle:
    """An unpacked bundle.

    Attributes:
        top: The temporary folder in which it was unpacked.
        contents: What its bundle.json holds.
        runs: The runs in it.
    """

    top: Path
    contents: BundleContents
    runs: tuple[OpenedRun, ...]

    def chosen(self, names: Sequence[str]) -> tuple[OpenedRun, ...]:
        """Return the runs of these names, or all without a name.

        Raises:
            UnknownNameError: The bundle has no such run.
        """
        known = {bundled.name: bundled for bundled in self.runs}
        for name in names:
            check_choice("run of the bundle", name, known)
        return tuple(known[name] for name in dict.fromkeys(names)) if names else self.runs


@contextlib.contextmanager
def opened(path: Path) -> Iterator[OpenedBundle]:
    """Yield a bundle, unpacked into a temporary folder and checked completely. Nothing of it is executed.

    Raises:
        UsageError: It is not a bundle as `raffed bundle` writes it.
    """
    members = read_archive(path)
    contents = _contents(path, members)
    with scratch_folder() as top:
        write_members(top, members)
        try:
            runs = tuple(_run(top, name) for name in contents["runs"])
            if contents["record"].endswith(runfile.SWEEP_FILE):
                read_sweep(within(top / RESULTS, contents["record"]).parent)
        except RaffedError as error:
            text = str(error).replace(f"{top}/", "").replace(str(top), "")
            raise UsageError(f"{path}: {text}; nothing was unpacked") from error
        yield OpenedBundle(top, contents, runs)


def _contents(path: Path, members: Mapping[str, bytes]) -> BundleContents:
    """Return what bundle.json holds, after comparing every file with its hash there."""
    try:
        read = json.loads(members[BUNDLE_FILE])
        note_read(read)
        check_json(BundleContents, read)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not a bundle that this raffed reads: {error}; nothing was unpacked"
        ) from error
    contents: BundleContents = read
    if len(set(contents["runs"])) < len(contents["runs"]):
        raise UsageError(f"{path}: {BUNDLE_FILE} lists a run twice; nothing was unpacked")
    listed = contents["files"]
    for name, data in members.items():
        if name != BUNDLE_FILE and listed.get(name) != hashlib.sha256(data).hexdigest():
            raise UsageError(
                f"{path}: {name} is not what {BUNDLE_FILE} lists (it was changed or added); nothing was "
                f"unpacked"
            )
    if missing := sorted(listed.keys() - members.keys()):
        raise UsageError(f"{path}: {missing[0]} is listed and not there; nothing was unpacked")
    return contents


def _run(top: Path, name: str) -> OpenedRun:
    """Return one run of an unpacked bundle, after the checks that every folder of a run goes through."""
    folder = top / RESULTS if name == "." else within(top / RESULTS, name)
    check_tree(folder)
    about = runfile.read_run(folder)
    if about["state"] != "finished":
        raise UsageError(f"{folder}: the run is {about['state']}, and a bundle holds finished runs only")
    check_unedited(folder)
    check_finished(folder, about)
    if (folder / PARTITION).exists():
        Partition.load(folder / PARTITION)
    check_code_files(top, about.get("code", []))
    return OpenedRun(name, folder, about, run_config(folder))


# Compare a run that was executed again with what its bundle recorded.


NAMED: Final = ("method", "dataset", "partition")


def compared(recorded: OpenedRun, place: Path, config: RunConfig) -> ReplayedRun:
    """Return what is equal between a recorded run and the same run executed again.

    Args:
        recorded: The run of the bundle.
        place: Folder of the run that was executed now.
        config: The configuration with which it was.
    """
    old, new = recorded.about, runfile.read_run(place)
    done, whole = int(new["rounds_done"]), new["state"] == "finished"
    rows, again = _rows(recorded.folder, done, whole), _rows(place, done, whole)
    if config.data != recorded.config.data:
        # Columns with names, which may be other ones on this machine
        words = {name: rows[name].cast(pa.string()).unique().to_pylist() for name in NAMED}
        again = with_values(again, {name: values[0] for name, values in words.items() if len(values) == 1})
    shown = without_client_losses(again) if "kept" in old["hashes"] else again
    difference = row_difference(rows, shown)
    # Of a whole run its own hash also covers the rows that records leave out
    before, now = (old["hashes"]["metrics"], again) if whole else (rows_sha256(rows), shown)
    checks = [
        *_inputs(old, new),
        VerificationCheck("rows", before, rows_sha256(now), done),
        *_weights(old["round_hashes"], recorded_hashes(place, new)),
        *(VerificationCheck(name, old["hashes"][key], new["hashes"][key]) for name, key in ENDS if whole),
    ]
    notes = [f"metric rows: {difference}"] if difference else []
    notes += [f"other code: {name}" for name in changes(old.get("code", []), new.get("code", []))]
    here, there = runfile.versions(), old["versions"]
    differs = [f"{name} {there.get(name)} → {here[name]}" for name in here if there.get(name) != here[name]]
    return ReplayedRun(recorded.name, done, tuple(checks), tuple(notes), tuple(differs))


ENDS: Final = (("client states", "vaults"), ("final weights", "weights"))


def _inputs(old: runfile.RunContents, new: runfile.RunContents) -> Iterator[VerificationCheck]:
    """Yield the checks of what a run begins with: partition, data and code."""
    yield VerificationCheck("partition", old["partition_sha256"], new["partition_sha256"])
    if "data_sha256" in old:
        yield VerificationCheck("data", old["data_sha256"], str(new.get("data_sha256", "")))
    if "code" in old:
        yield VerificationCheck("code", _digest(old["code"]), _digest(new.get("code", [])))


def _digest(records: Sequence[runfile.CodeRecord]) -> str:
    lines = sorted(
        {f"{code['role']} {name} {digest}" for code in records for name, digest in code["files"].items()}
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


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
        return all(replayed.ok for replayed in self.runs)

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON holds it."""
        runs = [
            {
                **asdict(replayed),
                "ok": replayed.ok,
                "checks": [{**asdict(check), "ok": check.ok} for check in replayed.checks],
            }
            for replayed in self.runs
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
    with opened(archive) as bundle:
        chosen = bundle.chosen(only)
        _check_trust(bundle.top, chosen, trust_code)
        _check_bits(chosen)
        with removed_on_failure(out):
            _settle(bundle.top, out)
    with removed_on_failure(out):
        runs = tuple(_again(out, bundled, data_root, rounds, watch) for bundled in chosen)
    outcome = Replay(out, runs, time.monotonic() - began)
    runfile.write_json(
        out / REPLAY_FILE, {**outcome.as_dict(), "folder": ".", "versions": runfile.versions()}
    )
    return outcome


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunFolderError(f"{out} exists and is not an empty folder; choose another --out")


def _check_trust(top: Path, runs: Sequence[OpenedRun], trust_code: bool) -> None:
    """Refuse to execute code that a bundle brings or names, unless the user has said that it may run."""
    for bundled in runs:
        if is_authors(bundled.config.method):
            try:
                check_engine(Path(bundled.name), bundled.about, bundled.config.method, accept=False)
            except gate.UntrustedCodeError as error:
                raise gate.UntrustedCodeError(
                    f"{bundled.config.method}: a bundle names this author's engine, and this account has not "
                    "executed it; read its code, and start a run of it by its name if it may run"
                ) from error
        records = {record["reference"]: record for record in bundled.about.get("code", [])}
        for reference in bundled.code():
            record = records.get(reference)
            if record is None and reference in references_in(bundled.config).values():
                raise UsageError(
                    f"{bundled.name}: {reference} is code, and the bundle holds no record of it; "
                    "bundle it again"
                )
            place = place_in(top, record) if record else located(reference.rpartition(":")[0])
            files = record["files"] if record else hashes_at(place) if place else {}
            gate.check_trusted(reference, place, files, trust_code)


def _check_bits(runs: Sequence[OpenedRun]) -> None:
    """Refuse runs whose bits this process does not compute, before a file of the replay is written.

    The command line then begins the replay of portable runs again in another environment.
    """
    kinds = {bundled.config.numerics.bits for bundled in runs}
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
    out: Path, bundled: OpenedRun, data_root: str | None, rounds: int, watch: Watch | None
) -> ReplayedRun:
    recorded = replace(bundled, folder=out / RECORDED / bundled.name)
    for record in recorded.about.get("code", []):
        if not is_authors(record["reference"]):
            install(place_in(out, record), record["reference"])
    config = replace(_here(recorded, data_root), clock=clock_here(recorded.config.clock, out))
    place, done = out / AGAIN / bundled.name, 0

    def count(event: RoundEvent) -> None:
        nonlocal done
        done = event.round
        if watch is not None:
            watch(recorded.name, event)

    run(config, place, watch=count, stop=lambda: 0 < rounds <= done)
    return compared(recorded, place, config)


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

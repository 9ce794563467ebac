"""Verify a run's folder: check the hashes of its files, and execute rounds again and compare every bit."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from raffed.core.messages import ClientState
from raffed.core.params import State
from raffed.data.partition import Partition
from raffed.errors import RaffedError, UsageError
from raffed.experiments.checkpoint import CHECKPOINTS, VAULTS, checkpoint_state, checkpoints, damaged_vaults
from raffed.experiments.federation import RoundLoop, weights_sha256
from raffed.experiments.folder import FINAL, RunFolder, run_config, vaults_sha256
from raffed.experiments.integrity import PARTITION, same_recipe
from raffed.experiments.row_differences import difference_notes, row_difference
from raffed.methods import build_method
from raffed.results.remote import STATE_FILE
from raffed.results.runfile import RUN_FILE, read_run, versions
from raffed.results.segments import difference, segments_of
from raffed.results.tree import check_run_tree, file_sha256
from raffed.results.writer import parts_of, read_metrics, rows_sha256, rows_until
from raffed.runtime.record_codec import digest, load_record, load_server
from raffed.runtime.serial import SerialBackend
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.vault_store import UNREADABLE, frozen_vaults

if TYPE_CHECKING:
    import pyarrow as pa

UNHASHED = (
    "the run was begun by a version of raffed that wrote down no hashes of its files: they are checked by "
    "their contents"
)


@dataclass(frozen=True)
class VerificationCheck:
    """A recorded value and the value that was found.

    `round` is the number of rounds done, for rounds that were executed again.
    """

    what: str
    recorded: str
    found: str
    round: int | None = None

    @property
    def ok(self) -> bool:
        return self.recorded == self.found


@dataclass(frozen=True)
class Certificate:
    """The outcome of a verification.

    `rounds` counts the rounds executed again, of `rounds_done`. `differs` lists versions as recorded → here.
    `segments` has a line for each part of a resumed run. `notes` says what could not be checked, and in which
    metrics rows differ.
    """

    folder: Path
    run_id: str
    state: str
    rounds_done: int
    rounds: tuple[int, ...]
    checks: tuple[VerificationCheck, ...]
    differs: tuple[str, ...]
    seconds: float
    segments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        checks = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return {**asdict(self), "folder": str(self.folder), "ok": self.ok, "checks": checks}


def verify(path: Path, rounds: int = 3, watch: Callable[[int, int], None] | None = None) -> Certificate:
    """Check every hash in a run's folder, and execute some of its rounds again.

    The rounds are executed serially in a temporary folder. They follow round 0 and each checkpoint that was
    kept, evenly. Nothing in `path` is changed, and nothing is downloaded.

    Args:
        path: The run's folder.
        rounds: Number of rounds to execute. If it is at least the number of rounds done, all are executed.
        watch: Called with (done, total) after each round.

    Returns:
        All checks with their outcomes.

    Raises:
        RunFolderError: No run can be read there.
        UsageError: The run cannot be set up here, because its data or a GPU is missing.
    """
    began = time.monotonic()
    if rounds < 0:
        raise UsageError(f"rounds = {rounds} is below 0")
    check_run_tree(path)
    about, config = read_run(path), run_config(path)
    build_method(config.method, config.args)  # registers the records that its client states consist of
    recorded = recorded_hashes(path, about)
    checks = [
        VerificationCheck("configuration", str(about.get("identity")), config.identity()),
        *_files(path, about, recorded),
    ]
    # A folder may come from anybody, so nothing is downloaded or written for it
    data = replace(config.data, download=False)
    serial = replace(config, data=data, runtime=replace(config.runtime, execution="serial"))
    setup = prepare_run(serial, data_sha256=str(about.get("data_sha256", "")))
    split = VerificationCheck(
        "split drawn again", str(about.get("partition_sha256")), setup.partition.sha256()
    )
    checks += [*_recipe(path, setup.partition), split]
    notes = () if "files" in about else (UNHASHED,)
    done: list[int] = []
    differences: dict[int, str] = {}
    if checks[0].ok and checks[-1].ok:
        starts = {0: None, **{_round(one): one for one in checkpoints(path) if _sound(one, checks)}}
        plan = sampled(sorted(starts), len(recorded), rounds)
        for first, count in plan.items():
            for check in _again(setup, path, starts[first], first, count, recorded, differences):
                checks.append(check)
                if check.round is not None and check.round not in done:
                    done.append(check.round)
                    if watch is not None:
                        watch(len(done), sum(plan.values()))
    return Certificate(
        path,
        str(about.get("run_id")),
        str(about.get("state")),
        len(recorded),
        tuple(done),
        tuple(checks),
        _differs(about),
        time.monotonic() - began,
        _segments(about),
        (*notes, *difference_notes(differences)),
    )


def sampled(starts: Sequence[int], done: int, count: int) -> dict[int, int]:
    """Return how many rounds to execute from each start.

    The starts are ascending and begin with 0. The rounds add up to `count`, are spread evenly, and each is
    executed at most once.

    >>> sampled([0, 10, 20], 25, 4)
    {0: 2, 10: 1, 20: 1}
    """
    ends = [*starts[1:], done]
    room = {start: end - start for start, end in zip(starts, ends, strict=True) if end > start}
    plan = dict.fromkeys(room, 0)
    left = min(count, sum(room.values()))
    while left:
        for start in plan:
            if left and plan[start] < room[start]:
                plan[start] += 1
                left -= 1
    return _joined({start: n for start, n in plan.items() if n}, room)


def _joined(plan: dict[int, int], room: dict[int, int]) -> dict[int, int]:
    """Join pieces that reach the next start into one, so that execution checks that checkpoint too."""
    joined: dict[int, int] = {}
    last = -1
    for start, count in plan.items():
        if last in joined and last + joined[last] == start:
            joined[last] += count
        else:
            joined[start], last = count, start
    return joined


def recorded_hashes(path: Path, about: dict[str, Any]) -> list[str]:
    """Return the hash of the weights after every recorded round.

    They are in run.json once the run is finished, and in the last checkpoint before that.
    """
    if "round_hashes" in about:
        return list(about["round_hashes"])
    for one in reversed(checkpoints(path)):
        with contextlib.suppress(RaffedError):  # a damaged checkpoint is reported by its own check
            return list(checkpoint_state(one).get("round_hashes", []))
    return []


def _files(path: Path, about: dict[str, Any], recorded: list[str]) -> Iterator[VerificationCheck]:
    """Compare the files in the folder with the hashes recorded for them."""
    yield from _bytes(path, about)
    split = lambda: Partition.load(path / "partition.npz").sha256()  # noqa: E731
    yield VerificationCheck("partition.npz", str(about.get("partition_sha256")), _or_unreadable(split))
    for one in checkpoints(path):
        yield from _checkpoint(one, recorded, str(about.get("identity")))
    if not recorded and about.get("rounds_done"):
        yield VerificationCheck("rounds done that a checkpoint holds", str(about["rounds_done"]), "0")
    until = lambda: str(min(rows_until(path)[0], len(recorded)))  # noqa: E731
    yield VerificationCheck("rounds with metric rows", str(len(recorded)), _or_unreadable(until))
    hashes = about.get("hashes")
    if hashes:
        final = lambda: _weights(path / "final.safetensors")  # noqa: E731
        yield VerificationCheck("final.safetensors", hashes["weights"], _or_unreadable(final))
        yield VerificationCheck(
            "final weights, last round", recorded[-1] if recorded else "no round", hashes["weights"]
        )
        yield VerificationCheck(
            "metric rows", hashes["metrics"], _or_unreadable(lambda: rows_sha256(read_metrics(path)))
        )
        last = path / CHECKPOINTS / f"round-{len(recorded):06d}"
        yield VerificationCheck(
            "vaults of the clients", hashes["vaults"], _or_unreadable(lambda: vaults_sha256(_vaults(last)))
        )


def _bytes(path: Path, about: Mapping[str, Any]) -> Iterator[VerificationCheck]:
    """Check every file with a recorded hash, of those that a reader of the folder reads.

    A part of rows that was joined with others, and a checkpoint that was replaced by a newer one, may be
    missing.
    """
    files = about.get("files")
    if files is None:
        return
    once = [
        name
        for name in (PARTITION, FINAL)
        if name in files and (about["state"] == "finished" or (path / name).exists())
    ]
    read = [*parts_of(path), *(one / STATE_FILE for one in checkpoints(path))]
    there = [one.relative_to(path).as_posix() for one in read]
    for name in sorted({*there, *once}):
        yield VerificationCheck(
            f"{name}, file",
            files.get(name, "not the run's"),
            _or_unreadable(partial(file_sha256, path / name)),
        )


def _recipe(path: Path, drawn: Partition) -> Iterator[VerificationCheck]:
    """Compare what partition.npz says about how the split was made. The hash of its lists does not
    cover that.
    """
    with contextlib.suppress(RaffedError):  # an unreadable file is reported by its own check
        ok = same_recipe(Partition.load(path / PARTITION), drawn)
        yield VerificationCheck(f"{PARTITION}, recipe", "this split's", "this split's" if ok else "another's")


def _checkpoint(one: Path, recorded: list[str], identity: str) -> Iterator[VerificationCheck]:
    try:
        said, server = checkpoint_state(one), load_server(one / "server.safetensors")
    except RaffedError:
        yield VerificationCheck(one.name, "a checkpoint", UNREADABLE)
        return
    yield VerificationCheck(one.name, str(said.get("server_sha256")), digest(server))
    weights = recorded[server.round - 1] if 0 < server.round <= len(recorded) else "no such round"
    yield VerificationCheck(f"{one.name}, weights", weights, weights_sha256(State(server.w, server.b)))
    if said.get("identity") != identity or said.get("round_hashes") != recorded[: _round(one)]:
        yield VerificationCheck(f"{one.name}, state.json", "this run's", "another's")
    damaged = damaged_vaults(one, said)
    for name, (hashed, found) in damaged.items():
        yield VerificationCheck(f"{one.name}, {name}", hashed, found)
    if said.get("vaults") and not damaged:
        yield VerificationCheck(
            f"{one.name}, vaults", f"{len(said['vaults'])} hashes", f"{len(said['vaults'])} hashes"
        )


def _again(
    setup: Setup,
    path: Path,
    start: Path | None,
    first: int,
    count: int,
    recorded: list[str],
    differences: dict[int, str],
) -> Iterator[VerificationCheck]:
    """Execute `count` rounds after round `first` again and compare weights, metric rows and checkpoints.

    Where rows differ, `differences` gets the reason, by round.
    """
    with tempfile.TemporaryDirectory(prefix="raffed-verify-") as made:
        place = Path(made) / "run"
        if start is not None:
            shutil.copytree(start, place / CHECKPOINTS / start.name)
            shutil.copy2(path / RUN_FILE, place / RUN_FILE)
        folder = RunFolder(place, setup, resume=start is not None, verifies=True)
        runtime = SerialBackend(setup, folder.vaults)
        try:
            federation = RoundLoop(setup, runtime, folder)
            for number in range(first + 1, first + count + 1):
                federation.step()
                yield VerificationCheck("weights", recorded[number - 1], federation.round_hashes[-1], number)
                yield from _meets(federation, runtime, path / CHECKPOINTS / f"round-{number:06d}", number)
            folder.checkpoint(
                federation.server, federation.round_hashes, federation.versions
            )  # this writes the rows
        finally:
            runtime.close()
        was, now = _or_none(path), read_metrics(place)
        for number in range(first + 1, first + count + 1):
            old = UNREADABLE if was is None else rows_sha256(_of_round(was, number))
            check = VerificationCheck("metric rows", old, rows_sha256(_of_round(now, number)), number)
            if was is not None and not check.ok:
                differences[number] = row_difference(_of_round(was, number), _of_round(now, number))
            yield check


def _meets(
    federation: RoundLoop, runtime: SerialBackend, kept: Path, number: int
) -> Iterator[VerificationCheck]:
    """Compare the whole server state and every client state, if a checkpoint was kept after this round."""
    if kept.exists():
        recorded = _or_unreadable(lambda: str(checkpoint_state(kept)["server_sha256"]))
        yield VerificationCheck("server", recorded, digest(federation.server), number)
        found = vaults_sha256(runtime.vault_digests(federation.versions))
        yield VerificationCheck("vaults", _or_unreadable(lambda: vaults_sha256(_vaults(kept))), found, number)


def _vaults(checkpoint: Path) -> dict[int, str]:
    files = frozen_vaults(checkpoint / VAULTS)
    return {
        int(one.name.split("@")[0].removeprefix("client-")): digest(load_record(one, ClientState))
        for one in files
    }


def _weights(path: Path) -> str:
    server = load_server(path)
    return weights_sha256(State(server.w, server.b))


def _sound(checkpoint: Path, checks: list[VerificationCheck]) -> bool:
    return all(check.ok for check in checks if check.what.startswith(checkpoint.name))


def _round(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("round-"))


def _of_round(rows: pa.Table, number: int) -> pa.Table:
    return rows.filter(pc.equal(rows["round"], number))


def _or_none(path: Path) -> pa.Table | None:
    try:
        return read_metrics(path)
    except RaffedError:
        return None


def _or_unreadable(read: Callable[[], str]) -> str:
    try:
        return read()
    except (RaffedError, OSError):
        return UNREADABLE


def _segments(about: dict[str, Any]) -> tuple[str, ...]:
    """Return what computed each part of a run that was resumed."""
    found = [one for one in segments_of(about) if one["from"] <= one["to"]]
    if len(found) < 2:
        return ()
    said = [f"rounds {one['from']}-{one['to']} ({one['started']})" for one in found]
    first = ", ".join(f"{name} {version}" for name, version in found[0]["versions"].items())
    changes = [difference(before, after) or "the same" for before, after in itertools.pairwise(found)]
    return tuple(f"{where}: {what}" for where, what in zip(said, [first, *changes], strict=True))


def _differs(about: dict[str, Any]) -> tuple[str, ...]:
    """Return what may explain differing bits.

    Floating-point results are equal only with the same torch on the same kind of processor.
    """
    here, there = versions(), about.get("versions", {})
    return tuple(
        f"{name} {there.get(name)} → {version}"
        for name, version in here.items()
        if there.get(name) != version
    )

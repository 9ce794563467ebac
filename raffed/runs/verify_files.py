"""Compare the files in the folder of a run with the hashes recorded for them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from raffed.config.federation import ValidationCurve, read_rule
from raffed.config.run import RunConfig
from raffed.core.messages import ClientState, ServerState
from raffed.core.method import Method
from raffed.data.partition_file import Partition
from raffed.errors import RaffedError
from raffed.results.files import file_sha256
from raffed.results.remote import STATE_FILE
from raffed.results.runfile import RUN_FILE, RunContents, json_text
from raffed.results.writer import parts_of, read_metrics, rows_sha256, rows_until
from raffed.runs.checkpoint import (
    BEST,
    CHECKPOINTS,
    CLIENT_STATES,
    SERVER,
    checkpoint_state,
    checkpoints,
    client_states_sha256,
    damaged_client_states,
    other_states,
    round_sha256,
    values_in,
)
from raffed.runs.folder import FINAL
from raffed.runs.integrity import PARTITION, EarlierRounds
from raffed.runtime import record_files

# The outcome of a verification: what was recorded, what was found, and where the two differ.


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

    def as_dict(self) -> dict[str, object]:
        checks = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return {**asdict(self), "folder": str(self.folder), "ok": self.ok, "checks": checks}


# Check that a run was ended, and its best model chosen, by the recorded validation scores alone.


NOT_ENDED = "not ended"


def check_validation(
    path: Path, about: RunContents, config: RunConfig, recorded: list[str], method: Method | None
) -> Iterator[VerificationCheck]:
    """Compare the end of a finished run and its best model with what its validation scores give.

    Args:
        path: The run's folder.
        about: What its run.json holds.
        config: The run's configuration.
        recorded: The hash of the weights after every recorded round.
        method: The run's method.
    """
    if about["state"] != "finished" or not config.data.validation:
        return
    try:
        rows = read_metrics(path)
    except RaffedError:  # reported by the check of the rows
        return
    if (rule := read_rule(config.federation.stop_when)) is not None:
        curve, end = ValidationCurve(rule.measure), NOT_ENDED
        for round, value in sorted(values_in(rows, rule.measure)):
            curve.values[round] = value
            decides = config.federation.forked_at < round < config.federation.rounds
            if decides and rule.reason(curve, round):  # the rounds before a fork were not under its rule
                end = f"round {round}"
                break
        said = f"round {about['rounds_done']}" if "ended_early" in about else NOT_ENDED
        yield VerificationCheck("end by federation.stop_when", said, end)
    if method is not None and (best := about.get("best")) is not None:
        chosen = ValidationCurve(best["measure"], values_in(rows, best["measure"])).best()
        yield VerificationCheck("best round", str(best["round"]), str(chosen[0] if chosen else "none"))
        there = 0 < best["round"] <= len(recorded)
        weights = recorded[best["round"] - 1] if there else "no such round"
        yield _read(f"{BEST}, weights", weights, lambda: _weights(path / BEST, method))


def check_files(
    path: Path, about: RunContents, recorded: list[str], method: Method | None
) -> Iterator[VerificationCheck]:
    """Compare the files in the folder of a run with the hashes recorded for them.

    `recorded` holds the hashes of the weights after every round, and `method` is the run's, None for an
    author's engine, whose checkpoint is one file that is never opened here.
    """
    written = hashlib.sha256(json_text(about).encode()).hexdigest()
    yield _read(f"{RUN_FILE}, file", written, lambda: file_sha256(path / RUN_FILE))
    yield from _bytes(path, about)
    if (path / PARTITION).exists() or PARTITION in about["files"]:
        yield _read(PARTITION, about["partition_sha256"], lambda: Partition.load(path / PARTITION).sha256())
    if method is not None:
        earlier = EarlierRounds(tuple(about.get("earlier", ())))
        for checkpoint in checkpoints(path):
            yield from _checkpoint(checkpoint, recorded, about["identity"], earlier, method)
    yield from _store(path)
    if not recorded and about.get("rounds_done"):
        yield VerificationCheck("rounds done that a checkpoint holds", str(about["rounds_done"]), "0")
    count = len(recorded)
    yield _read("rounds with metric rows", str(count), lambda: str(min(rows_until(path)[0], count)))
    if "hashes" in about:
        yield from _results(path, about["hashes"], recorded, method)


def _results(
    path: Path, hashes: Mapping[str, str], recorded: list[str], method: Method | None
) -> Iterator[VerificationCheck]:
    """Compare the results of a finished run with its three hashes."""
    if method is not None:
        yield _read(FINAL, hashes["weights"], lambda: _weights(path / FINAL, method))
    last = recorded[-1] if recorded else "no round"
    yield VerificationCheck("final weights, last round", last, hashes["weights"])
    rows = hashes.get("kept", hashes["metrics"])
    yield _read("metric rows", rows, lambda: rows_sha256(read_metrics(path)))
    checkpoint = path / CHECKPOINTS / f"round-{len(recorded):06d}"
    states = partial(client_state_hashes, checkpoint)
    yield _read("vaults of the clients", hashes["vaults"], lambda: client_states_sha256(states()))


def _bytes(path: Path, about: RunContents) -> Iterator[VerificationCheck]:
    """Check every file with a recorded hash, of those that a reader of the folder reads.

    A part of rows that was joined with others, and a checkpoint that was replaced by a newer one, may be
    missing.
    """
    files = about["files"]
    once = [
        name
        for name in (PARTITION, FINAL, BEST)
        if name in files and (about["state"] == "finished" or (path / name).exists())
    ]
    states = [*(checkpoint / STATE_FILE for checkpoint in checkpoints(path)), *path.glob("engine-*.pt")]
    read = [*parts_of(path), *states]
    there = [file.relative_to(path).as_posix() for file in read]
    for name in sorted({*there, *once}):
        yield _read(f"{name}, file", files.get(name, "not the run's"), partial(file_sha256, path / name))


def check_recipe(path: Path, drawn: Partition) -> Iterator[VerificationCheck]:
    """Compare what partition.npz says about how the split was made. The hash of its lists does not
    cover that.
    """
    with contextlib.suppress(RaffedError):  # an unreadable file is reported by its own check
        recorded = Partition.load(path / PARTITION)
        ok = (recorded.num_classes, recorded.recipe) == (drawn.num_classes, drawn.recipe)
        yield VerificationCheck(f"{PARTITION}, recipe", "this split's", "this split's" if ok else "another's")


def _checkpoint(
    checkpoint: Path, recorded: list[str], identity: str, earlier: EarlierRounds, method: Method
) -> Iterator[VerificationCheck]:
    try:
        said, server = checkpoint_state(checkpoint), record_files.load_server(checkpoint / SERVER, method)
    except RaffedError:
        yield VerificationCheck(checkpoint.name, "a checkpoint", record_files.UNREADABLE)
        return
    yield VerificationCheck(checkpoint.name, said["server_sha256"], record_files.digest(server))
    weights = recorded[server.round - 1] if 0 < server.round <= len(recorded) else "no such round"
    yield VerificationCheck(f"{checkpoint.name}, weights", weights, round_sha256(server))
    ours = said["identity"] == identity or earlier.accepts(said["identity"], round_of(checkpoint))
    if not ours or said["round_hashes"] != recorded[: round_of(checkpoint)]:
        yield VerificationCheck(f"{checkpoint.name}, state.json", "this run's", "another's")
    for name, sha256 in other_states(said).items():
        yield _read(
            f"{checkpoint.name}, {name}",
            sha256,
            partial(record_files.saved_digest, checkpoint / name, ServerState),
        )
    damaged = damaged_client_states(checkpoint, said)
    for name, (hashed, actual) in damaged.items():
        yield VerificationCheck(f"{checkpoint.name}, {name}", hashed, actual)
    if said["vaults"] and not damaged:
        count = f"{len(said['vaults'])} hashes"
        yield VerificationCheck(f"{checkpoint.name}, vaults", count, count)


def _store(path: Path) -> Iterator[VerificationCheck]:
    """Compare the client states that a run works with with those of its checkpoints, which are the same."""
    known: dict[str, str] = {}
    for checkpoint in checkpoints(path):
        with contextlib.suppress(RaffedError):  # an unreadable checkpoint is reported by its own check
            known |= checkpoint_state(checkpoint)["vaults"]
    for folder in sorted((path / CLIENT_STATES).glob("clients-*")):
        for name, sha256 in record_files.saved_hashes(folder).items():
            if name in known and known[name] != sha256:
                yield VerificationCheck(f"{CLIENT_STATES}/{name}", known[name], sha256)


def client_state_hashes(checkpoint: Path) -> dict[int, str]:
    """Return client → hash of its state in a checkpoint."""
    files = record_files.saved_client_states(checkpoint / CLIENT_STATES)
    return {
        int(f.name.split("@")[0].removeprefix("client-")): record_files.saved_digest(f, ClientState)
        for f in files
    }


def _weights(path: Path, method: Method) -> str:
    return round_sha256(record_files.load_server(path, method))


def round_of(checkpoint: Path) -> int:
    """Return the number of rounds that were done at a checkpoint."""
    return int(checkpoint.name.removeprefix("round-"))


def _read(what: str, recorded: str, read: Callable[[], str]) -> VerificationCheck:
    """Return the check of a recorded value with what `read` returns."""
    return VerificationCheck(what, recorded, or_unreadable(read))


def or_unreadable(read: Callable[[], str]) -> str:
    """Return what `read` returns, or a word for a file that cannot be read."""
    try:
        return read()
    except (RaffedError, OSError):
        return record_files.UNREADABLE

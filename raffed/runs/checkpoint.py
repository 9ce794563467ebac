"""A run's checkpoints: which exist, what their state.json says, and whether its hashes fit the contents.

The best model of a run, which checkpoints hold, is chosen here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NotRequired, cast

import pyarrow as pa
from typing_extensions import TypedDict

from raffed.config.federation import ValidationCurve, read_rule
from raffed.core.messages import Addressed, ServerState
from raffed.core.params import State
from raffed.errors import RunFolderError, check_permitted
from raffed.federation.selection import needs_losses
from raffed.results.files import (
    JsonFileError,
    check_json,
    file_sha256,
    read_json,
    removed_on_failure,
    sync_folder,
    sync_tree,
)
from raffed.results.metric import Metric, Row
from raffed.results.metrics import PERSONAL_VALIDATION, VALIDATION_ACCURACY, VALIDATION_LOSS
from raffed.results.remote import STATE_FILE
from raffed.results.rows import common_values
from raffed.results.runfile import Best, write_json
from raffed.results.writer import MetricsWriter, rows_until
from raffed.runs.integrity import EarlierRounds, check_file
from raffed.runs.record import RunRecord
from raffed.runtime.record_files import (
    UNREADABLE,
    digest,
    load_server,
    restore_client_states,
    save_client_states,
    save_record,
    saved_digest,
    saved_hashes,
)
from raffed.runtime.setup import Setup

# The early end of a run, and its best model. Both are decided on the clients' validation parts alone.


BEST = "best.safetensors"  # the server's state with the best model, in a checkpoint and in a finished run
METRICS: dict[str, Metric] = {
    "val.accuracy": VALIDATION_ACCURACY,
    "val.loss": VALIDATION_LOSS,
    "val.personal": PERSONAL_VALIDATION,
}


@dataclass(frozen=True)
class BestModel:
    """The server's state after the round with the best value on the validation parts."""

    server: ServerState
    measure: str
    value: float

    def described(self) -> Best:
        """Return what run.json records about it."""
        return {"round": self.server.round, "measure": self.measure, "value": self.value}


class Validation:
    """The validation measure of a run: when it ends the run, and which round was the best.

    Args:
        stop_when: `federation.stop_when`.
        validates: Whether the clients have validation parts.
        has_global: Whether the method has a global model. Only such a model is kept as the best.
        earlier: The rows of the rounds before, if the run is resumed.
        best: The best model of the rounds before; None if there is none, or if none was kept.
    """

    def __init__(
        self,
        stop_when: str,
        validates: bool,
        has_global: bool,
        earlier: pa.Table | None = None,
        best: BestModel | None = None,
    ) -> None:
        self.rule = read_rule(stop_when)
        measured = "val.accuracy" if has_global else "val.personal"
        self.measure = measured if self.rule is None else self.rule.measure
        self._keeps = validates and has_global
        before = () if earlier is None else values_in(earlier, self.measure)
        self.curve = ValidationCurve(self.measure, before)
        known = self.curve.best()
        self.best = best
        self._complete = known is None or (best is not None and best.server.round == known[0])
        if known is not None and best is not None and self._complete:
            # A fork may decide by another measure than its run, under which this was the best model too
            self.best = replace(best, measure=self.measure, value=known[1])

    def add(self, round: int, rows: Sequence[Row], server: ServerState) -> None:
        """Take note of a round's rows. `server` is the server's state after the round."""
        wanted = (*METRICS[self.measure].place, None, None)
        values = [
            row.value for row in rows if (row.model, row.split, row.metric, row.client, row.class_) == wanted
        ]
        if not values:
            return
        self.curve.values[round] = values[0]
        if self._keeps and self.curve.best() == (round, values[0]):
            self.best, self._complete = BestModel(server, self.measure, values[0]), True

    @property
    def kept(self) -> BestModel | None:
        """The best model of all rounds so far.

        It is None for a fork whose best round was not the best one for its run, which decided by another
        measure.
        """
        return self.best if self._complete else None


def values_in(rows: pa.Table, measure: str) -> list[tuple[int, float]]:
    """Return (rounds done, value) of a measure in a run's rows."""
    return common_values(rows, METRICS[measure])


# All that a run goes on from, as a checkpoint holds it.


@dataclass(frozen=True)
class RunState:
    """Where a run stands after a round. The clients' states are kept by their actors.

    Attributes:
        server: The server's state.
        round_hashes: The hash of the weights after every round.
        versions: Client → number of rounds done when it last took part.
        best: The best model so far, if the run keeps it.
        past: Number → an earlier state of the server from which clients still train (config/sections.py).
    """

    server: ServerState
    round_hashes: list[str]
    versions: Mapping[int, int]
    best: BestModel | None = None
    past: Mapping[int, ServerState] = field(default_factory=dict)


# The hashes by which two runs are compared: of the server's weights and of all client states.


def weights_sha256(state: State) -> str:
    """Return the SHA-256 of the named weights and buffers as float32, in the model's order."""
    total = hashlib.sha256()
    for params in (state.w, state.b):
        for name, tensor in params.tensors.items():
            total.update(name.encode())
            total.update(tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


def round_sha256(server: ServerState) -> str:
    """Return the SHA-256 of what clients download after a round: of the weights, and of tables of replies.

    Without such a table (`Addressed`) it is that of the weights.
    """
    weights = weights_sha256(State(server.w, server.b))
    tables = [digest(table) for _, table in sorted(server.slots.items()) if isinstance(table, Addressed)]
    return hashlib.sha256(" ".join([weights, *tables]).encode()).hexdigest() if tables else weights


def client_states_sha256(digests: Mapping[int, str]) -> str:
    """Return one SHA-256 for all client states, from client → digest."""
    lines = "".join(f"{client} {digests[client]}\n" for client in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


CLIENT_STATES = "vaults"
CHECKPOINTS = "checkpoints"
SERVER = "server.safetensors"
MISSING = "missing"


class BestRecord(Best):
    """The best model so far, with the hash of the server's state."""

    sha256: str


class CheckpointState(TypedDict):
    """The hashes in a checkpoint's state.json. `vaults` maps file → SHA-256.

    `versions` maps a client to the number of rounds done when it last took part. It is there if the selection
    looks at losses, so that the participants cannot be drawn again. `past` maps the number of an earlier
    model of the server from which clients still train to its hash (config/sections.py).
    """

    round: int
    server_sha256: str
    identity: str
    round_hashes: list[str]
    vaults: dict[str, str]
    best: NotRequired[BestRecord]
    versions: NotRequired[dict[str, int]]
    past: NotRequired[dict[str, str]]


def checkpoints(path: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return sorted(
        entry for entry in (path / CHECKPOINTS).glob("round-*") if re.fullmatch(r"round-\d{6,9}", entry.name)
    )


def checkpoint_state(checkpoint: Path) -> CheckpointState:
    """Return the contents of a checkpoint's state.json.

    Raises:
        RunFolderError: The file does not have these fields.
    """
    path = checkpoint / STATE_FILE
    try:
        state = read_json(path)
        check_json(CheckpointState, state)
    except JsonFileError as error:
        if isinstance(error.__cause__, OSError):
            check_permitted(path, error.__cause__)
        raise RunFolderError(f"{path}: damaged ({error.why}); delete {checkpoint}") from error
    except ValueError as error:
        raise RunFolderError(f"{path}: damaged ({error}); delete {checkpoint}") from error
    return cast("CheckpointState", state)


def state_name(checkpoint: Path) -> str:
    """Return the name of a checkpoint's state.json below the run's folder."""
    return f"{CHECKPOINTS}/{checkpoint.name}/{STATE_FILE}"


def check_checkpoint(checkpoint: Path, files: Mapping[str, str]) -> CheckpointState:
    """Return the state.json of a checkpoint whose files all have the hashes in it. No state is made of them.

    Args:
        checkpoint: The checkpoint's folder.
        files: The hashes in run.json, by which state.json is checked. state.json holds the hashes of
            everything else.

    Raises:
        RunFolderError: A state of the server or of a client is damaged.
    """
    check_file(checkpoint.parents[1], state_name(checkpoint), files, f"delete {checkpoint}")
    about = checkpoint_state(checkpoint)
    for name, sha256 in {SERVER: about["server_sha256"], **other_states(about)}.items():
        if saved_digest(checkpoint / name, ServerState) != sha256:
            raise RunFolderError(
                f"{checkpoint / name}: does not have the hash in state.json; delete {checkpoint}"
            )
    for name, (_, actual) in damaged_client_states(checkpoint, about).items():
        what = f"is {actual}" if actual in (MISSING, UNREADABLE) else "does not have the hash in state.json"
        raise RunFolderError(
            f"{checkpoint / CLIENT_STATES / name}: {what}; put it back, or delete {checkpoint}"
        )
    return about


def past_name(number: int) -> str:
    """Return the name of the file of an earlier model from which clients still train."""
    return f"past-{number:06d}.safetensors"


def other_states(about: CheckpointState) -> dict[str, str]:
    """Return file → recorded hash of the other states of the server in a checkpoint: best and earlier."""
    best = {BEST: about["best"]["sha256"]} if "best" in about else {}
    return best | {past_name(int(number)): sha256 for number, sha256 in about.get("past", {}).items()}


def damaged_client_states(checkpoint: Path, about: CheckpointState) -> dict[str, tuple[str, str]]:
    """Return file → (recorded hash, actual hash) for every client state where the two differ."""
    recorded, saved = about["vaults"], saved_hashes(checkpoint / CLIENT_STATES)
    pairs = {
        name: (recorded.get(name, MISSING), saved.get(name, MISSING)) for name in sorted({*recorded, *saved})
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


# Write the checkpoints of a run that is being executed, and find the one from which it continues.


class CheckpointStore:
    """The checkpoints in a run's folder.

    `resumed` is the server's state from which the run continues, or None if it begins. `round_hashes` holds
    the hashes of the rounds until then.
    """

    def __init__(self, setup: Setup, identity: str, record: RunRecord, earlier: EarlierRounds) -> None:
        self._method, self._identity, self._earlier = setup.method, identity, earlier
        federation = setup.config.federation
        self._keep, self._forked_at = setup.config.runtime.keep_checkpoints, federation.forked_at
        self._records_versions = needs_losses(federation)
        self._record, self._path = record, record.path
        self.states_folder = record.path / CLIENT_STATES
        self.resumed: ServerState | None = None
        self.round_hashes: list[str] = []
        self.versions: dict[int, int] = {}  # as the checkpoint records them, see CheckpointState
        self.past: dict[int, ServerState] = {}  # earlier states from which clients still train, by number
        self.best: BestModel | None = None  # in the checkpoint from which the run continues
        self._saved = -1
        self.client_state_hashes: dict[str, str] = {}  # of the client states in the last checkpoint
        self._left_behind: list[Path] = []  # checkpoints of rounds that an extended run computes again

    @property
    def rounds_done(self) -> int:
        return self.resumed.round if self.resumed else 0

    def save(self, state: RunState, writer: MetricsWriter) -> None:
        """Write the collected rows, then a checkpoint, completely or not at all, and remove the oldest."""
        self._record.place.check()
        folder = self._path / CHECKPOINTS
        target, part = folder / f"round-{state.server.round:06d}", folder / ".part"
        shutil.rmtree(part, ignore_errors=True)
        with writer.flushing() as rows, removed_on_failure(part):
            folder.mkdir(exist_ok=True)
            hashes = self._write(part, state)
            self._record.add_files({**rows, state_name(target): file_sha256(part / STATE_FILE)})
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        sync_folder(folder)
        self._saved, self.client_state_hashes = state.server.round, hashes
        # A fork keeps the checkpoint from which it began
        origin = f"round-{self._forked_at:06d}" if self._forked_at else ""
        for old in checkpoints(self._path)[: -self._keep]:
            if old.name != origin:
                shutil.rmtree(old)
        self._record.write({"rounds_done": state.server.round})

    def _write(self, part: Path, state: RunState) -> dict[str, str]:
        """Write a checkpoint to a new folder `part`, and return the hashes of its client states."""
        server, best = state.server, state.best
        part.mkdir()
        save_record(server, part / SERVER)
        kept = state.versions if self._method.keeps_state else {}
        known = self.client_state_hashes
        hashes = save_client_states(self.states_folder, kept, part / CLIENT_STATES, known)
        about: dict[str, object] = {
            "round": server.round,
            "server_sha256": digest(server),
            "round_hashes": state.round_hashes,
            "vaults": hashes,
            "identity": self._identity,
        }
        if self._records_versions or self.versions:
            about["versions"] = {str(client): done for client, done in sorted(state.versions.items())}
        if best is not None:
            save_record(best.server, part / BEST)
            about["best"] = {**best.described(), "sha256": digest(best.server)}
        if state.past:
            about["past"] = {str(number): digest(former) for number, former in sorted(state.past.items())}
            for number, former in state.past.items():
                save_record(former, part / past_name(number))
        write_json(part / STATE_FILE, about)
        sync_tree(part)
        return hashes

    def lacks(self, server: ServerState) -> bool:
        """Return whether the server has completed rounds after the last checkpoint."""
        return server.round > max(self._saved, 0)

    def restore(self, *, with_rows: bool) -> list[str]:
        """Read the last sound checkpoint and return warnings about damaged ones. Nothing is changed.

        `with_rows` says that a checkpoint also needs the metric rows of all its rounds.
        """
        earlier, method = self._earlier, self._method
        complete, unread, said = checkpoints(self._path), None, list[str]()
        until, why = rows_until(self._path) if complete and with_rows else (0, "")
        for checkpoint in reversed(complete):
            try:
                about = check_checkpoint(checkpoint, self._record.contents["files"])
                server = load_server(checkpoint / SERVER, method)
                if with_rows and server.round > until:
                    raise RunFolderError(why)
            except RunFolderError as error:
                said.append(f"{error}. Going on from the checkpoint before it")
                unread = error
                continue
            identity = about["identity"]
            if identity != self._record.contents["identity"] and not earlier.accepts(identity, server.round):
                if earlier.knows(identity):
                    self._left_behind.append(checkpoint)
                    continue
                raise RunFolderError(
                    f"{checkpoint}: this is a checkpoint of another run; put back the run's own"
                )
            self.resumed, self.round_hashes, self._saved = server, about["round_hashes"], server.round
            if (best := about.get("best")) is not None:
                state = load_server(checkpoint / BEST, method)
                self.best = BestModel(state, best["measure"], best["value"])
            for number in map(int, about.get("past", {})):
                self.past[number] = load_server(checkpoint / past_name(number), method)
            self.client_state_hashes = about.get("vaults", {})
            self.versions = {int(client): done for client, done in about.get("versions", {}).items()}
            return said
        if unread is not None:  # starting again without being asked could cost days
            again = f"once {self._path / CHECKPOINTS} is deleted, `raffed resume {self._path}` begins again"
            raise RunFolderError(f"{unread}. There is no whole checkpoint before it: {again}") from unread
        return said

    def thaw(self) -> None:
        """Put the client states of the checkpoint that was restored where the clients read them."""
        for checkpoint in self._left_behind:
            shutil.rmtree(checkpoint, ignore_errors=True)
        if self.resumed is None:
            shutil.rmtree(self.states_folder, ignore_errors=True)
        else:
            restore_client_states(
                self._path / CHECKPOINTS / f"round-{self.rounds_done:06d}" / CLIENT_STATES, self.states_folder
            )

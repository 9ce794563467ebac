"""Write the checkpoints of a run that is being executed, and find the one from which it continues."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from raffed.core.messages import ServerState
from raffed.errors import RunFolderError
from raffed.federation.selection import needs_losses
from raffed.results.atomic import sync_folder, sync_tree
from raffed.results.remote import STATE_FILE
from raffed.results.runfile import write_json
from raffed.results.tree import file_sha256
from raffed.results.writer import MetricsWriter, rows_until
from raffed.runs.best_model import BEST, BestModel
from raffed.runs.checkpoint import (
    CHECKPOINTS,
    CLIENT_STATES,
    SERVER,
    best_in,
    check_checkpoint,
    checkpoints,
    past_in,
    past_name,
    state_name,
)
from raffed.runs.earlier import EarlierRounds
from raffed.runs.run_record import RunRecord
from raffed.runs.run_state import RunState
from raffed.runtime.record_codec import digest, load_server, save_record
from raffed.runtime.saved_client_states import restore_client_states, save_client_states
from raffed.runtime.setup import Setup


class CheckpointStore:
    """The checkpoints in a run's folder.

    `resumed` is the server's state from which the run continues, or None if it begins. `round_hashes` holds
    the hashes of the rounds until then.
    """

    def __init__(self, setup: Setup, record: RunRecord) -> None:
        self._setup, self._record, self._path = setup, record, record.path
        self.resumed: ServerState | None = None
        self.round_hashes: list[str] = []
        self.versions: dict[int, int] = {}  # as the checkpoint records them, see CheckpointState
        self.past: dict[int, ServerState] = {}  # earlier states from which clients still train, by number
        self.best: BestModel | None = None  # in the checkpoint from which the run continues
        self._saved = -1
        self._client_state_hashes: dict[str, str] = {}  # of the client states in the last checkpoint
        self._left_behind: list[Path] = []  # checkpoints of rounds that an extended run computes again

    @property
    def rounds_done(self) -> int:
        return self.resumed.round if self.resumed else 0

    @property
    def states_folder(self) -> Path:
        return self._path / CLIENT_STATES

    def save(self, state: RunState, writer: MetricsWriter) -> None:
        """Write the collected rows, then a checkpoint, completely or not at all, and remove the oldest."""
        self._record.check_place()
        folder = self._path / CHECKPOINTS
        target, part = folder / f"round-{state.server.round:06d}", folder / ".part"
        shutil.rmtree(part, ignore_errors=True)
        with writer.flushing() as rows, _removed_on_failure(part):
            folder.mkdir(exist_ok=True)
            hashes = self._write(part, state)
            self._record.add_files({**rows, state_name(target): file_sha256(part / STATE_FILE)})
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        sync_folder(folder)
        self._saved, self._client_state_hashes = state.server.round, hashes
        for old in self._to_remove():
            shutil.rmtree(old)
        self._record.write({"rounds_done": state.server.round})

    def _to_remove(self) -> list[Path]:
        """Return the oldest checkpoints that need not be kept. A fork keeps the one from which it began."""
        federation, runtime = self._setup.config.federation, self._setup.config.runtime
        kept = f"round-{federation.forked_at:06d}" if federation.forked_at else ""
        return [one for one in checkpoints(self._path)[: -runtime.keep_checkpoints] if one.name != kept]

    def _write(self, part: Path, state: RunState) -> dict[str, str]:
        """Write a checkpoint to the folder `part` and return the hashes of its client states."""
        server, versions, best = state.server, state.versions, state.best
        part.mkdir()
        save_record(server, part / SERVER)
        kept = versions if self._setup.method.keeps_state else {}
        hashes = save_client_states(self.states_folder, kept, part / CLIENT_STATES, self._client_state_hashes)
        about: dict[str, object] = {
            "round": server.round,
            "server_sha256": digest(server),
            "round_hashes": state.round_hashes,
            "vaults": hashes,
            "identity": self._setup.config.identity(),
        }
        if needs_losses(self._setup.config) or self.versions:
            about["versions"] = {str(client): done for client, done in sorted(versions.items())}
        if best is not None:
            save_record(best.server, part / BEST)
            chosen = {"round": best.server.round, "measure": best.measure, "value": best.value}
            about["best"] = {**chosen, "sha256": digest(best.server)}
        if state.past:
            about["past"] = {str(number): digest(one) for number, one in sorted(state.past.items())}
            for number, one in state.past.items():
                save_record(one, part / past_name(number))
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
        earlier = EarlierRounds.of(self._record.contents)
        method = self._setup.method
        found, unread, said = checkpoints(self._path), None, list[str]()
        until, why = rows_until(self._path) if found and with_rows else (0, "")
        for checkpoint in reversed(found):
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
            self.best, self.past = best_in(checkpoint, about, method), past_in(checkpoint, about, method)
            self._client_state_hashes = about.get("vaults", {})
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


@contextlib.contextmanager
def _removed_on_failure(part: Path) -> Iterator[None]:
    """Remove a folder if the block fails: on a full disk its space is needed."""
    try:
        yield
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise

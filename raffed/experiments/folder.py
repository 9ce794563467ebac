"""The folder of a run (docs/design.md §5): run.json, partition.npz, metrics, checkpoints and final weights.

Only the driver uses it.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raffed.config.run import RunConfig
from raffed.core.messages import ServerState
from raffed.errors import RunFolderError, UsageError
from raffed.experiments.checkpoint import CHECKPOINTS, VAULTS, checkpoints, read_checkpoint, state_name
from raffed.experiments.folder_place import Place
from raffed.experiments.integrity import PARTITION, check_partition, check_rows
from raffed.experiments.method_revision import check_revision
from raffed.experiments.provenance import gpus, new_run, new_segment
from raffed.results.atomic import sync_file, sync_folder, sync_tree
from raffed.results.lock import LOCK_FILE, make_folder
from raffed.results.remote import STATE_FILE
from raffed.results.run_fields import RUN_SCHEMA
from raffed.results.runfile import RUN_FILE, read_run, write_json
from raffed.results.schema import Row
from raffed.results.segments import difference, segments_of, up_to
from raffed.results.tree import file_sha256
from raffed.results.writer import MetricsWriter, parts_of, read_metrics, rows_sha256, rows_until
from raffed.runtime.record_codec import digest, save_record
from raffed.runtime.setup import Setup
from raffed.runtime.vault_store import freeze_vaults, thaw_vaults

FINAL = "final.safetensors"
# How many hashes of checkpoints' state.json run.json holds. A copy at a URL may lag some checkpoints behind.
KEPT_STATES = 100
CHANGED = (
    "{path}: resumed under other conditions: {what}; from here on its bits may differ from those of a run "
    "without a pause"
)

log = logging.getLogger(__name__)


def run_config(path: Path) -> RunConfig:
    """Return the configuration of the run in a folder.

    The address of a Ray cluster is not taken from the file: a cluster named by a stranger's file could run
    code here. Whoever resumes the run gives it again.

    Raises:
        RunFolderError: There is no run.
    """
    found = read_run(path)
    try:
        config = RunConfig.from_dict(found["config"])
        return replace(config, runtime=replace(config.runtime, address=near(config.runtime.address)))
    except (UsageError, OverflowError) as error:
        raise RunFolderError(
            f"{path / RUN_FILE}: its configuration cannot be read: {error}; put back a copy of it"
        ) from error


def near(address: str | None) -> str | None:
    """Return the address of a Ray cluster if this machine belongs to that cluster, else None."""
    return address if address == "auto" else None


def check_unedited(path: Path) -> None:
    """Refuse a run whose configuration in run.json was edited. Its results would mix two runs."""
    recorded, found = read_run(path).get("identity"), run_config(path).identity()
    if recorded != found:
        raise RunFolderError(
            f"{path / RUN_FILE}: its configuration was edited (identity {found[:12]}, recorded "
            f"{str(recorded)[:12]}); "
            "put it back, or start a new run with another --out"
        )


def check_free(path: Path, config: RunConfig) -> None:
    """Refuse a folder that already holds a run or something else."""
    if (path / RUN_FILE).exists():
        same, state = run_config(path).identity() == config.identity(), read_run(path).get("state")
        advice = (
            f"`raffed resume {path}` continues it"
            if same
            else "its configuration differs; choose another --out"
        )
        if same and state == "running":  # it was killed, or it is running and the file system has no locks
            advice = f"if nothing works on it any more, {advice}"
        raise RunFolderError(f"{path} holds a run already ({state}); {advice}")
    if path.exists() and (not path.is_dir() or any(one.name != LOCK_FILE for one in path.iterdir())):
        raise RunFolderError(f"{path} exists and is not an empty folder; choose another --out")


class RunFolder:
    """The folder of a run, opened anew or, with `resume=True`, at its last checkpoint.

    Every file is written in a single step. `verifies` says that the folder is a copy in which rounds are
    executed again: it has no metric rows, and no warnings are given about it.
    """

    def __init__(self, path: Path, setup: Setup, *, resume: bool = False, verifies: bool = False) -> None:
        self.path, self.setup, self._verifies = path, setup, verifies
        self.resumed: ServerState | None = None
        self.round_hashes: list[str] = []
        self._saved = -1
        self._vault_hashes: dict[str, str] = {}  # of the client states in the last checkpoint
        self._began = time.monotonic()
        said: list[str] = []
        if resume:
            self._about = read_run(path)
            check_revision(path, self._about, setup.config.method)
            said = self._opened()
        else:
            check_free(path, setup.config)
            self._about = new_run(setup)
            make_folder(path)
        self._files: dict[str, str] = self._about.setdefault("files", {})
        self._earlier = float(self._about.get("seconds", 0.0))
        self._place = Place(path)
        if not resume:
            self._write(state="running", error=None)  # done first; from here on the run can be resumed
        self._save_partition()
        config = setup.config
        self._writer = MetricsWriter(
            path,
            self._about["run_id"],
            config.method,
            setup.dataset.name,
            config.data.split,
            config.seed,
            self._record,
        )
        if resume:
            self._continue(said)

    @property
    def vaults(self) -> Path:
        return self.path / VAULTS

    @property
    def rounds_done(self) -> int:
        return self.resumed.round if self.resumed else 0

    def rows(self, rows: Iterable[Row]) -> None:
        """Keep a round's rows until the next checkpoint."""
        self._writer.add(rows)

    def note(self, **changes: Any) -> None:
        """Record what was decided at the start, such as the placement and the versions in the cluster."""
        names = gpus(changes.get("placement", {}))
        if names:
            *earlier, now = self._about["segments"]
            now["hardware"]["gpu"] = names
            if earlier and (other := difference(earlier[-1], now)) and other not in " ".join(now["said"]):
                now["said"].append(self._say(CHANGED.format(path=self.path, what=other)))
        self._write(**changes)

    def checkpoint(self, server: ServerState, round_hashes: list[str], versions: Mapping[int, int]) -> None:
        """Write the rows, then the server's state and all client states of its round, completely or not at
        all.

        `versions` maps a client to the number of rounds done when it last took part.
        """
        self._place.check()
        folder = self.path / CHECKPOINTS
        target, part = folder / f"round-{server.round:06d}", folder / ".part"
        shutil.rmtree(part, ignore_errors=True)
        with self._writer.flushing() as rows:
            try:
                folder.mkdir(exist_ok=True)
                part.mkdir()
                save_record(server, part / "server.safetensors")
                kept = versions if self.setup.method.keeps_state else {}
                hashes = freeze_vaults(self.vaults, kept, part / VAULTS, self._vault_hashes)
                about = {
                    "round": server.round,
                    "server_sha256": digest(server),
                    "round_hashes": round_hashes,
                    "vaults": hashes,
                    "identity": self.setup.config.identity(),
                }
                write_json(part / STATE_FILE, about)
                sync_tree(part)
                self._record({**rows, state_name(target): file_sha256(part / STATE_FILE)})
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)  # on a full disk its space is needed
                raise
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        sync_folder(folder)
        self._saved, self._vault_hashes = server.round, hashes
        for old in checkpoints(self.path)[: -self.setup.config.runtime.keep_checkpoints]:
            shutil.rmtree(old)
        self._write(rounds_done=server.round)

    def rescue(self, server: ServerState, round_hashes: list[str], versions: Mapping[int, int]) -> None:
        """Keep the completed rounds, before a failure is reported."""
        if server.round > max(self._saved, 0):
            self.checkpoint(server, round_hashes, versions)

    def finish(
        self,
        server: ServerState,
        weights_sha256: str,
        vault_digests: Mapping[int, str],
        round_hashes: list[str],
    ) -> dict[str, str]:
        """Write the final weights and all hashes, and mark the run as finished."""
        save_record(server, self.path / FINAL)
        sync_file(self.path / FINAL)
        self._files[FINAL] = file_sha256(self.path / FINAL)
        check_rows(self.path, server.round)  # before their hash is recorded
        self._writer.join()
        hashes = {
            "weights": weights_sha256,
            "vaults": vaults_sha256(vault_digests),
            "metrics": rows_sha256(read_metrics(self.path)),
        }
        self._write(state="finished", rounds_done=server.round, hashes=hashes, round_hashes=round_hashes)
        shutil.rmtree(self.vaults, ignore_errors=True)  # the last checkpoint holds them
        return hashes

    def end(self, state: str, error: str | None) -> None:
        """Mark a run that is not finished as "stopped" (on request) or "failed" (with a message)."""
        self._write(state=state, error=error)

    def _write(self, **changes: Any) -> None:
        self._place.check()
        self._about.update(changes)
        self._about["segments"][-1]["to"] = self._about["rounds_done"]
        self._about["seconds"] = self._earlier + time.monotonic() - self._began
        write_json(self.path / RUN_FILE, self._about)

    def _record(self, hashes: Mapping[str, str]) -> None:
        """Record the hashes of files that are about to get their names.

        If the run is killed in between, run.json holds hashes of files that do not exist.
        """
        self._files |= hashes
        states = [name for name in self._files if name.endswith(STATE_FILE)]
        for name in sorted(states)[:-KEPT_STATES]:
            del self._files[name]
        self._write()

    def _save_partition(self) -> None:
        if not (self.path / PARTITION).exists():
            self.setup.partition.save(self.path / PARTITION)
            self._files.pop(PARTITION, None)
        if PARTITION not in self._files:
            self._files[PARTITION] = file_sha256(self.path / PARTITION)
            self._write()

    def _opened(self) -> list[str]:
        """Check everything that the run continues from, before anything is changed, and read the last sound
        checkpoint.

        Returns the warnings.
        """
        self._check_same()
        said = [] if self._verifies else check_partition(self.path, self._about, self.setup.partition)
        said += self._restore()
        known = self._about.get("files")
        if known is None:
            self._about |= {"schema": RUN_SCHEMA, "files": self._adopted()}
            said.append(
                f"{self.path}: begun by a version of raffed that wrote down no hashes of its files; they "
                f"have hashes now"
            )
        before = segments_of(self._about)
        self._about["rounds_done"] = self.rounds_done
        self._about["segments"] = [*up_to(before, self.rounds_done), new_segment(self.rounds_done)]
        if other := difference(before[-1], self._about["segments"][-1]):
            said.append(CHANGED.format(path=self.path, what=other))
        return said

    def _adopted(self) -> dict[str, str]:
        """Return the hashes of the files of an old run that recorded none."""
        files = [*parts_of(self.path), *(one / STATE_FILE for one in checkpoints(self.path))]
        return {path.relative_to(self.path).as_posix(): file_sha256(path) for path in files if path.is_file()}

    def _continue(self, said: Sequence[str]) -> None:
        """Make the first changes in the folder of a resumed run."""
        if self.resumed is None:
            shutil.rmtree(self.vaults, ignore_errors=True)
        else:
            thaw_vaults(self.path / CHECKPOINTS / f"round-{self.rounds_done:06d}" / VAULTS, self.vaults)
        self._writer.drop_after(self.rounds_done)
        self._about["segments"][-1]["said"] = [self._say(one) for one in said]
        self._write(state="running", error=None)

    def _say(self, text: str) -> str:
        if not self._verifies:
            log.warning("%s", text)
        return text

    def _check_same(self) -> None:
        check_unedited(self.path)
        if self._about["identity"] != self.setup.config.identity():
            raise RunFolderError(
                f"{self.path}: the run there has another configuration; resume takes no new one, and no "
                f"other number of threads "
                f"(there {run_config(self.path).runtime.threads}) or kind of device: its bits would be others"
            )
        recorded, drawn = self._about.get("partition_sha256"), self.setup.partition.sha256()
        if recorded != drawn:
            raise RunFolderError(
                f"{self.path}: its split has hash {recorded}, the data now give {drawn}; the data changed"
            )

    def _restore(self) -> list[str]:
        """Read the last sound checkpoint and return warnings about damaged ones. Nothing is changed."""
        _ = self.setup.method  # importing it registers the records that a checkpoint may name
        found, unread, said = checkpoints(self.path), None, list[str]()
        until, why = rows_until(self.path) if found and not self._verifies else (0, "")
        for checkpoint in reversed(found):
            try:
                server, about = read_checkpoint(checkpoint, self._about.get("files"))
                if not self._verifies and server.round > until:
                    raise RunFolderError(why)
            except RunFolderError as error:
                said.append(f"{error}. Going on from the checkpoint before it")
                unread = error
                continue
            if about["identity"] != self._about["identity"]:
                raise RunFolderError(f"{checkpoint}: a checkpoint of another run; put back the run's own")
            self.resumed, self.round_hashes, self._saved = server, about["round_hashes"], server.round
            self._vault_hashes = about.get("vaults", {})
            return said
        if unread is not None:  # starting again without being asked could cost days
            again = f"once {self.path / CHECKPOINTS} is deleted, `raffed resume {self.path}` begins again"
            raise RunFolderError(f"{unread}. There is no whole checkpoint before it: {again}") from unread
        return said


def vaults_sha256(digests: Mapping[int, str]) -> str:
    """Return one SHA-256 for all client states, from client → digest."""
    lines = "".join(f"{client} {digests[client]}\n" for client in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()

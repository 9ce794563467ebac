"""The folder of a run (docs/design.md §5): run.json, partition.npz, metrics, checkpoints and final weights.

Only the driver uses it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from raffed.config.run import RunConfig
from raffed.core.messages import ServerState
from raffed.data.own_data import check_unchanged, read_own
from raffed.errors import RunFolderError, UsageError
from raffed.results.files import file_sha256, sync_file
from raffed.results.lock import LOCK_FILE, make_folder
from raffed.results.metric import Metric
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256
from raffed.runs.checkpoint import BEST, BestModel, CheckpointStore, RunState, client_states_sha256
from raffed.runs.code_record import check_revision, code_records, write_notebook
from raffed.runs.integrity import PARTITION, EarlierRounds, check_drawn, check_partition, check_rows
from raffed.runs.record import RunRecord, new_run
from raffed.runtime.record_files import client_state_name, save_record
from raffed.runtime.setup import Setup

FINAL = "final.safetensors"


def run_config(path: Path) -> RunConfig:
    """Return the configuration of the run in a folder.

    The address of a Ray cluster is not taken from the file: a cluster could run code here, and is sent the
    user's token. Nor is it a word for a download or for an interpreter. Whoever resumes the run gives them
    again.

    Raises:
        RunFolderError: There is no run.
    """
    contents = read_run(path)
    try:
        config = RunConfig.from_dict(contents["config"])
        data, runtime = (
            replace(config.data, download=False),
            replace(config.runtime, address=None, author_python=""),
        )
        return replace(config, data=data, runtime=runtime)
    except (UsageError, OverflowError) as error:
        raise RunFolderError(
            f"{path / RUN_FILE}: its configuration cannot be read: {error}; put back a copy of it"
        ) from error


def check_data(begun: Iterable[Path]) -> None:
    """Check that data of one's own are still those of the runs beside which new ones are to begin.

    Args:
        begun: The folders of runs that have begun. Damaged ones are left to those who use them.

    Raises:
        DataFileError: They have changed, so that the runs could not be compared.
    """
    recorded = set[tuple[str, str]]()
    for folder in begun:
        with contextlib.suppress(RunFolderError):
            if sha256 := read_run(folder).get("data_sha256"):
                recorded.add((run_config(folder).data.dataset, sha256))
    for text, sha256 in sorted(recorded):
        check_unchanged(text, read_own(text), sha256)


def check_unedited(path: Path) -> None:
    """Refuse a run whose configuration in run.json was edited. Its results would mix two runs."""
    recorded, actual = read_run(path).get("identity"), run_config(path).identity()
    if recorded != actual:
        raise RunFolderError(
            f"{path / RUN_FILE}: its configuration was edited (identity {actual[:12]}, recorded "
            f"{str(recorded)[:12]}); "
            "put it back, or start a new run with another --out"
        )
    EarlierRounds(tuple(read_run(path).get("earlier", ()))).check(path)


def check_free(path: Path, identity: str) -> None:
    """Refuse a folder that already holds a run or something else. `identity` is that of the new run."""
    if (path / RUN_FILE).exists():
        same, state = run_config(path).identity() == identity, read_run(path).get("state")
        advice = "its configuration differs; choose another --out"
        if same and state == "finished":
            advice = (
                f"`raffed report {path}` shows it and `raffed verify {path}` checks it; to run it again, "
                "choose another --out"
            )
        elif same:
            advice = f"`raffed resume {path}` continues it"
        if same and state == "running":  # it was killed, or it is running and the file system has no locks
            advice = f"if nothing works on it any more, {advice}"
        raise RunFolderError(f"{path} already holds a run ({state}); {advice}")
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK_FILE for entry in path.iterdir())):
        raise RunFolderError(f"{path} exists and is not an empty folder; choose another --out")


def check_identity(path: Path, recorded: str, identity: str) -> None:
    """Refuse to go on with a run in a configuration that has other bits than the one it was begun with."""
    if recorded != identity:
        raise RunFolderError(
            f"{path}: the run there has another configuration, and it goes on neither with a new one "
            f"nor with another number of threads (there {run_config(path).runtime.threads}) or kind "
            "of device, because these would change its results"
        )


class RunFolder:
    """The folder of a run, opened anew or, with `resume=True`, at its last checkpoint.

    `verifies` says that the folder is a copy in which rounds are executed again: it has no metric rows, and
    no warnings are given about it.

    Attributes:
        record: What run.json holds.
        writer: Keeps a round's rows until the next checkpoint.
        recorded_rows: The rows of the rounds from which the run continues; None if there are none to go by.
        states_folder: Where the clients' states are kept between rounds.
        resumed: The server's state from which the run continues, or None if it begins.
        round_hashes: The hashes of the weights after every round that was done when the folder was opened.
        versions: Client → number of rounds done when it last took part, if the checkpoint records it.
        best: The best model of the rounds that were done when the folder was opened.
        past: The server's earlier states from which clients still train, by number (config/sections.py).
        earlier: The configurations under which the first rounds of an extended or forked run were computed.
    """

    def __init__(self, path: Path, setup: Setup, *, resume: bool = False, verifies: bool = False) -> None:
        self.path, self._verifies, config = path, verifies, setup.config
        identity = config.identity()
        if not resume:
            check_free(path, identity)
            contents = new_run(setup)
            make_folder(path)
        else:
            contents = read_run(path)
            check_revision(path, contents["method_revision"], config.method)
        self.record = RunRecord(path, contents, quiet=verifies)
        self.earlier = EarlierRounds(tuple(contents.get("earlier", ())))
        self._checkpoints = CheckpointStore(setup, identity, self.record, self.earlier)
        warnings = self._opened(setup, identity) if resume else []
        if not resume:
            self.record.write({"state": "running", "error": None})  # from here on the run can be resumed
        write_notebook(path, setup.code)
        # Nothing reads it in a copy in which rounds are verified
        if not verifies and not ((path / PARTITION).exists() and PARTITION in self.record.files):
            setup.partition.save(path / PARTITION)
            self.record.add_files({PARTITION: file_sha256(path / PARTITION)})
        about = contents["run_id"], config.method, setup.dataset.name, config.data.split, config.seed
        self.writer = MetricsWriter(path, *about, self.record.add_files)
        restored = self._checkpoints
        self.states_folder, self.resumed = restored.states_folder, restored.resumed
        self.round_hashes, self.versions = restored.round_hashes, restored.versions
        self.best, self.past = restored.best, restored.past
        self.recorded_rows: pa.Table | None = None
        if resume:
            restored.thaw()
            self.writer.drop_after(restored.rounds_done)
            self.record.warn(warnings)
            self.record.write({"state": "running", "error": None})
            if restored.rounds_done and not verifies:
                self.recorded_rows = read_metrics(path)

    def describe(self, metrics: Iterable[Metric]) -> None:
        """Describe metrics of the method's own in run.json, which the next checkpoint writes."""
        contents = self.record.contents
        known = {metric["name"] for metric in contents.get("metrics", [])}
        for m in metrics:
            if m.name not in known:
                said = {"name": m.name, "better": m.better, "unit": m.unit.name, "meaning": m.meaning}
                contents.setdefault("metrics", []).append({**said, "reference": contents["config"]["method"]})

    def stateless(self, versions: Mapping[int, int]) -> list[int]:
        """Return the clients of whom the checkpoint holds no state: a fork may keep what its run did not.

        They begin anew. `versions` are those of the states that all others have.
        """
        held = self._checkpoints.client_state_hashes
        return [client for client, done in versions.items() if client_state_name(client, done) not in held]

    def checkpoint(self, state: RunState) -> None:
        """Write the rows, then the server's state and all client states of its round, completely or not at
        all.
        """
        self._checkpoints.save(state, self.writer)

    def rescue(self, state: RunState) -> None:
        """Keep the completed rounds, before a failure is reported."""
        if self._checkpoints.lacks(state.server):
            self.checkpoint(state)

    def finish(
        self,
        server: ServerState,
        weights_sha256: str,
        client_state_digests: Mapping[int, str],
        round_hashes: list[str],
        best: BestModel | None = None,
        ended_early: str = "",
    ) -> None:
        """Write the final weights, the best ones if there are any, and all hashes; mark the run as finished.

        `ended_early` says why the run ended before its last round.
        """
        if best is not None:
            self._save(BEST, best.server)
            self.record.contents["best"] = best.described()
        if ended_early:
            self.record.contents["ended_early"] = ended_early
        self._save(FINAL, server)
        check_rows(self.path, server.round)  # before their hash is recorded
        self.writer.join()
        hashes = {
            "weights": weights_sha256,
            "vaults": client_states_sha256(client_state_digests),
            "metrics": rows_sha256(read_metrics(self.path)),
        }
        self.record.write(
            {"state": "finished", "rounds_done": server.round, "hashes": hashes, "round_hashes": round_hashes}
        )
        shutil.rmtree(self.states_folder, ignore_errors=True)  # the last checkpoint holds them

    def _save(self, name: str, server: ServerState) -> None:
        """Write a state of the server beside run.json, which gets its hash with the next change."""
        save_record(server, self.path / name)
        sync_file(self.path / name)
        self.record.files[name] = file_sha256(self.path / name)

    def _opened(self, setup: Setup, identity: str) -> list[str]:
        """Check everything that the run continues from, before anything is changed, and read the last sound
        checkpoint.

        Returns the warnings.
        """
        check_unedited(self.path)
        contents = self.record.contents
        check_identity(self.path, contents["identity"], identity)
        check_drawn(self.path, contents, setup.partition, setup.config)
        said = [] if self._verifies else check_partition(self.path, contents)
        said += self._checkpoints.restore(with_rows=not self._verifies)
        return said + self.record.begin_segment(self._checkpoints.rounds_done, code_records(setup.code))

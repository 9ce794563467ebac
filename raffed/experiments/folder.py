"""The folder of a run (design.md §5): run.json, partition.npz, metrics, checkpoints, final weights. Driver only."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from raffed.core.boundary import Server
from raffed.core.config import RunConfig
from raffed.core.errors import RunFolderError
from raffed.experiments.checkpoint import CHECKPOINTS, VAULTS, checkpoints, read_checkpoint
from raffed.results.atomic import sync_file, sync_folder, sync_tree
from raffed.results.lock import LOCK_FILE, held, make_folder
from raffed.results.runfile import RUN_FILE, read_run, versions, write_json
from raffed.results.schema import Row
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256, rows_until
from raffed.runtime.process import onednn_is_faster, processor
from raffed.runtime.setup import Setup
from raffed.runtime.vault_store import digest, freeze_vaults, save_record, thaw_vaults

log = logging.getLogger(__name__)


def run_config(path: Path) -> RunConfig:
    """The configuration of the run in a folder; a RunFolderError if there is none. Which Ray cluster is joined, whoever
    resumes the run says anew: a cluster that the file of a stranger names could run code here."""
    found = read_run(path)
    try:
        config = RunConfig.from_dict(found["config"])
        return replace(config, runtime=replace(config.runtime, address=near(config.runtime.address)))
    except KeyError as error:
        raise RunFolderError(f"{path / RUN_FILE}: has no {error}; it was not written by raffed") from error


def near(address: str | None) -> str | None:
    """The address of a Ray cluster if it is the one this machine belongs to, else None."""
    return address if address == "auto" else None


def check_unedited(path: Path) -> None:
    """Refuse a run whose configuration in run.json is not the one it was started with: its bits would mix two runs."""
    recorded, found = read_run(path).get("identity"), run_config(path).identity()
    if recorded != found:
        raise RunFolderError(
            f"{path / RUN_FILE}: its configuration was edited (identity {found[:12]}, recorded {str(recorded)[:12]}); "
            "put it back, or start a new run with another --out"
        )


def check_free(path: Path, config: RunConfig) -> None:
    """Refuse a folder that holds a run, or something else, already."""
    if (path / RUN_FILE).exists():
        same, state = run_config(path).identity() == config.identity(), read_run(path).get("state")
        advice = f"`raffed resume {path}` continues it" if same else "its configuration differs; choose another --out"
        if same and state == "running":  # killed; or its file system has no locks, and it is at work
            advice = f"if nothing works on it any more, {advice}"
        raise RunFolderError(f"{path} holds a run already ({state}); {advice}")
    if path.exists() and (not path.is_dir() or any(one.name != LOCK_FILE for one in path.iterdir())):
        raise RunFolderError(f"{path} exists and is not an empty folder; choose another --out")


class RunFolder:
    """Opens a new folder, or with `resume=True` the checkpoint of an old one. Everything is written in single steps.

    with_rows: whether the metric rows of the rounds done must be there, as they must be but for `verify`.
    """

    def __init__(self, path: Path, setup: Setup, *, resume: bool = False, with_rows: bool = True) -> None:
        self.path, self.setup = path, setup
        self.resumed: Server | None = None
        self.round_hashes: list[str] = []
        self._saved = -1
        self._vault_hashes: dict[str, str] = {}  # of the last checkpoint
        self._began = time.monotonic()
        if resume:
            self._about = read_run(path)
            self._check_same()
        else:
            check_free(path, setup.config)
            self._about = _new_run(setup)
            make_folder(path)
        self._earlier = float(self._about.get("seconds", 0.0))
        if not resume:
            self._write(state="running", error=None)  # first of all: from here on the folder can be resumed
        if not (path / "partition.npz").exists():
            setup.partition.save(path / "partition.npz")
        config = setup.config
        self._writer = MetricsWriter(
            path, self._about["run_id"], config.method, setup.dataset.name, config.data.split, config.seed
        )
        if resume:
            self._restore(with_rows)
            self._write(state="running", error=None, rounds_done=self.rounds_done)

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
        """Record what was decided while starting (placement, versions of the cluster)."""
        self._write(**changes)

    def checkpoint(self, server: Server, round_hashes: list[str], versions: Mapping[int, int]) -> None:
        """Flush the rows, then write the server and every vault as of its round: completely or not at all. versions: client →
        rounds done when it last took part."""
        self._writer.flush()
        folder = self.path / CHECKPOINTS
        target, part = folder / f"round-{server.round:06d}", folder / ".part"
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir(parents=True)
            save_record(server, part / "server.safetensors")
            kept = versions if self.setup.method.keeps_state else {}
            hashes = freeze_vaults(self.vaults, kept, part / VAULTS, self._vault_hashes)
            about = {"round": server.round, "server_sha256": digest(server), "round_hashes": round_hashes,
                     "vaults": hashes, "identity": self.setup.config.identity()}  # fmt: skip
            write_json(part / "state.json", about)
            sync_tree(part)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)  # on a full disk its room is wanted
            raise
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        sync_folder(folder)
        self._saved, self._vault_hashes = server.round, hashes
        for old in checkpoints(self.path)[: -self.setup.config.runtime.keep_checkpoints]:
            shutil.rmtree(old)
        self._write(rounds_done=server.round)

    def rescue(self, server: Server, round_hashes: list[str], versions: Mapping[int, int]) -> None:
        """Before a failure is reported: keep the rounds that were completed."""
        if server.round > max(self._saved, 0):
            self.checkpoint(server, round_hashes, versions)

    def finish(
        self, server: Server, weights_sha256: str, vault_digests: Mapping[int, str], round_hashes: list[str]
    ) -> dict[str, str]:
        """Final weights and hashes; the run is finished."""
        save_record(server, self.path / "final.safetensors")
        sync_file(self.path / "final.safetensors")
        check_rows(self.path, server.round)  # before they are sealed
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
        """The run ends without being finished: "stopped" on request, "failed" with a message."""
        self._write(state=state, error=error)

    def _write(self, **changes: Any) -> None:
        self._about.update(changes)
        self._about["seconds"] = self._earlier + time.monotonic() - self._began
        write_json(self.path / RUN_FILE, self._about)

    def _check_same(self) -> None:
        check_unedited(self.path)
        if self._about["identity"] != self.setup.config.identity():
            raise RunFolderError(
                f"{self.path}: the run there has another configuration; resume takes no new one, and no other number of threads "
                f"(there {run_config(self.path).runtime.threads}) or kind of device: its bits would be others"
            )
        recorded, drawn = self._about.get("partition_sha256"), self.setup.partition.sha256()
        if recorded != drawn:
            raise RunFolderError(f"{self.path}: its split has hash {recorded}, the data now give {drawn}; the data changed")

    def _restore(self, with_rows: bool) -> None:
        _ = self.setup.method  # importing it registers the records that a checkpoint may name
        found, unread = checkpoints(self.path), None
        until, why = rows_until(self.path) if with_rows and found else (0, "")
        for checkpoint in reversed(found):
            try:
                server, about = read_checkpoint(checkpoint)
                if with_rows and server.round > until:
                    raise RunFolderError(why)
            except RunFolderError as error:
                log.warning("%s. Going on from the checkpoint before it", error)
                unread = error
                continue
            if about["identity"] != self._about["identity"]:
                raise RunFolderError(f"{checkpoint}: a checkpoint of another run; put back the run's own")
            self.resumed, self.round_hashes, self._saved = server, about["round_hashes"], server.round
            self._vault_hashes = about.get("vaults", {})
            thaw_vaults(checkpoint / VAULTS, self.vaults)
            break
        if self.resumed is None and unread is not None:  # to begin again unasked could cost days
            again = f"once {self.path / CHECKPOINTS} is deleted, `raffed resume {self.path}` begins again"
            raise RunFolderError(f"{unread}. There is no whole checkpoint before it: {again}") from unread
        if self.resumed is None:
            shutil.rmtree(self.vaults, ignore_errors=True)
        self._writer.drop_after(self.rounds_done)


def check_rows(path: Path, rounds: int) -> None:
    """Raise a RunFolderError unless each of a run's first `rounds` rounds has metric rows that can be read."""
    until, why = rows_until(path)
    if until < rounds:
        raise RunFolderError(why)


def vaults_sha256(digests: Mapping[int, str]) -> str:
    """One SHA-256 for all vaults, from client → digest."""
    lines = "".join(f"{client} {digests[client]}\n" for client in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def mark_interrupted(path: Path) -> None:
    """Put down in run.json that a run was ended from outside, where its driver no longer can; not if another command has it."""
    if not (path / RUN_FILE).exists():
        return
    with contextlib.suppress(RunFolderError), held(path):
        about = read_run(path)
        if about.get("state") == "running":
            write_json(path / RUN_FILE, {**about, "state": "stopped", "error": "interrupted"})


def _new_run(setup: Setup) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.timezone.utc)
    identity = setup.config.identity()
    return {
        "schema": 1,
        "run_id": f"{setup.config.method}-{setup.config.seed}-{identity[:8]}-{now:%Y%m%dT%H%M%S%f}",
        "config": setup.config.spelt().as_dict(),
        "identity": identity,
        "started": now.isoformat(timespec="seconds"),
        "versions": versions(),
        "commit": _commit(),
        "hardware": _hardware(),
        "clients": setup.partition.num_clients,
        "classes": _classes(setup),
        "partition_sha256": setup.partition.sha256(),
        "rounds_done": 0,
    }


def _hardware() -> dict[str, str | int | None]:
    """The driver's machine; its last three decide on bits: processor, vectors torch uses, library of large linear layers."""
    about: dict[str, str | int | None] = {"machine": platform.machine(), "system": platform.platform(), "cores": os.cpu_count()}
    by = "oneDNN" if onednn_is_faster() else "torch"
    return {**about, "processor": processor(), "vectors": torch.backends.cpu.get_cpu_capability(), "linear": by}


def _classes(setup: Setup) -> dict[str, list[int]]:
    """Of every class: training samples, and clients that train on it. Head, tail and missing classes are read off these."""
    counts = setup.partition.class_counts(setup.dataset.y_train)
    return {"samples": counts.sum(axis=0).tolist(), "holders": (counts > 0).sum(axis=0).tolist()}


def _commit() -> str | None:
    """The commit of the source tree, with a + if it was changed; None for an installed package."""
    where = Path(__file__).resolve().parents[2]
    if not (where / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(where)]
        head, dirty = (  # a file's name may be anything
            subprocess.run([*git, *words], capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=10)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")

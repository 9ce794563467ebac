"""A run's folder after what goes wrong: its state is told truly, its checkpoints outlive a loss of power and damage."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed.core.errors import ActorsLostError, RunFolderError
from raffed.experiments.folder import checkpoints
from raffed.experiments.run import conduct_at
from raffed.results.runfile import read_run
from raffed.runtime.process import processor
from raffed.runtime.serial import SerialRuntime
from raffed.runtime.setup import prepare
from tests.runtime.conftest import small


class Unplaced(SerialRuntime):
    """Its actors cannot be placed."""

    closed = False

    def placement(self) -> dict[str, Any]:
        raise ActorsLostError("no actor came up: the test's doing")

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after three of four rounds, with checkpoints after the second and the third."""
    path, seen = tmp_path / "run", list[int]()
    raffed.run(small(), path, watch=lambda event: seen.append(event.round), stop=lambda: len(seen) == 3)
    assert [one.name for one in checkpoints(path)] == ["round-000002", "round-000003"]
    return path


def test_a_run_whose_actors_never_come_up_has_failed_and_its_runtime_is_closed(tmp_path: Path) -> None:
    path, setup = tmp_path / "run", prepare(small())
    runtime = Unplaced(setup, path / "vaults")
    with pytest.raises(ActorsLostError, match="the test's doing"):
        list(conduct_at(setup, path, False, runtime, lambda: False))
    assert (read_run(path)["state"], read_run(path)["error"]) == ("failed", "no actor came up: the test's doing")
    assert runtime.closed


@pytest.mark.parametrize(("fast", "library"), [(True, "oneDNN"), (False, "torch")])
def test_a_run_says_what_of_its_machine_its_bits_hang_on(
    fast: bool, library: str, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.experiments.folder.onednn_is_faster", lambda: fast)
    raffed.run(small(), tmp_path / "again", stop=lambda: True)
    hardware = read_run(tmp_path / "again")["hardware"]
    assert hardware["linear"] == library
    assert (hardware["machine"], hardware["vectors"]) == (platform.machine(), torch.backends.cpu.get_cpu_capability())
    assert hardware["processor"] == read_run(stopped)["hardware"]["processor"] == processor()


@pytest.mark.parametrize("file", ["server.safetensors", "state.json"])
def test_behind_a_damaged_checkpoint_a_run_goes_on_from_the_one_before_to_the_same_bits(
    stopped: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    (stopped / "checkpoints" / "round-000003" / file).write_bytes(b"")
    assert raffed.resume(stopped).hashes == raffed.run(small()).hashes
    assert "round-000003" in caplog.text
    assert "Going on from the checkpoint before it" in caplog.text


def test_a_run_without_a_sound_checkpoint_is_refused_and_keeps_its_state(stopped: Path) -> None:
    """To begin again unasked could cost days."""
    for checkpoint in checkpoints(stopped):
        (checkpoint / "server.safetensors").write_bytes(b"")
    with pytest.raises(RunFolderError, match=r"round-000002.*not a readable Server"):
        raffed.resume(stopped)
    assert read_run(stopped)["state"] == "stopped"


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_everything_in_a_checkpoint_is_on_the_disk_before_it_takes_its_name(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power could leave a name with nothing behind it."""
    fsync, sync, replace, seen = os.fsync, os.sync, Path.replace, set[str]()
    synced: dict[tuple[int, int], int] = {}

    def written(found: os.stat_result) -> None:
        synced[found.st_dev, found.st_ino] = found.st_size

    def one(file: Any) -> None:
        written(os.fstat(file))
        fsync(file)

    def everything() -> None:
        for path in tmp_path.rglob("*"):
            written(path.stat())
        sync()

    def renamed(self: Path, target: Path) -> Path:
        if self.name == ".part":
            for path in (self, *self.rglob("*")):
                found = path.stat()
                seen.add(path.name)
                assert synced.get((found.st_dev, found.st_ino)) == found.st_size, path
        return replace(self, target)

    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(os, "fsync", one)
    monkeypatch.setattr(os, "sync", everything)
    monkeypatch.setattr(Path, "replace", renamed)
    raffed.run(small(rounds=2), tmp_path / "run")
    assert {"server.safetensors", "state.json", "vaults"} <= seen
    assert any(name.startswith("client-") for name in seen)
    final, folder = (tmp_path / "run" / "final.safetensors").stat(), (tmp_path / "run" / "checkpoints").stat()
    assert all((made.st_dev, made.st_ino) in synced for made in (final, folder))

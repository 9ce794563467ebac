"""A run's folder after what goes wrong: its state is told truly, its checkpoints outlive a loss of power and
damage, and if it goes away while the run writes there, one error says what to do.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import (
    ActorsLostError,
    DiskFullError,
    FolderLostError,
    RaffedError,
    RunFolderError,
    UsageError,
)
from raffed.results.runfile import read_run
from raffed.runtime.worker import SerialBackend
from tests.cli.conftest import contents
from tests.params import one_in
from tests.runtime.conftest import small


def test_a_run_whose_actors_never_come_up_has_failed_and_its_runtime_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*given: object) -> None:
        raise ActorsLostError("no actor came up: the test's doing")

    closed = list[object]()
    monkeypatch.setattr(SerialBackend, "placement", lost)
    monkeypatch.setattr(SerialBackend, "close", lambda self: closed.append(self))
    with pytest.raises(ActorsLostError, match="the test's doing"):
        raffed.run(small(), tmp_path / "run")
    about = read_run(tmp_path / "run")
    assert (about["state"], about["error"]) == ("failed", "no actor came up: the test's doing")
    assert len(closed) == 1


def flipped(path: Path) -> None:
    """One bit of the last float."""
    raw = bytearray(path.read_bytes())
    raw[-4] ^= 1
    path.unlink()  # a hard link: the other names keep their bytes
    path.write_bytes(raw)


def truncated(path: Path) -> None:
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(raw[:-20])


LAST = "checkpoints/round-000003"
# A vault of the newest checkpoint that the one before does not hold
VAULT, PART = f"{LAST}/vaults/*@000003.safetensors", "metrics/part-000003-000003.parquet"


@pytest.mark.parametrize(
    ("file", "damage"),
    one_in(
        3,
        [
            (VAULT, flipped),
            (VAULT, Path.unlink),
            (PART, truncated),
            (f"{LAST}/state.json", truncated),
            (f"{LAST}/server.safetensors", flipped),
        ],
    ),
)
def test_behind_a_damaged_file_a_run_goes_on_from_the_checkpoint_before_to_the_same_bits(
    stopped: Path, file: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damaged = sorted(stopped.glob(file))[0]
    damage(damaged)
    assert raffed.resume(stopped).hashes == raffed.run(small()).hashes
    assert "Going on from the checkpoint before it" in caplog.text
    assert ("round 3" in caplog.text) or (damaged.name in caplog.text)


@pytest.mark.parametrize(
    ("files", "damage", "told"),
    one_in(
        3,
        [
            ("checkpoints/*/vaults/client-*", flipped, r"round-000002/vaults/client-"),
            ("checkpoints/*/server.safetensors", truncated, r"round-000002/server.safetensors"),
            ("metrics/part-000001-000002.parquet", truncated, "000001-000002.parquet: damaged"),
            ("metrics/part-000001-000002.parquet", Path.unlink, "rows of round 1;"),
        ],
    ),
)
def test_a_file_that_is_damaged_in_every_checkpoint_is_named_nothing_is_touched_and_the_advice_helps(
    files: str, damage: Callable[[Path], None], told: str, stopped: Path
) -> None:
    """To begin again unasked could cost days."""
    for path in stopped.glob(files):
        damage(path)
    before, seen = contents(stopped), list[object]()
    with pytest.raises(RunFolderError, match=rf"{told}.*no whole checkpoint before it: once .* deleted"):
        raffed.resume(stopped, watch=seen.append)
    assert seen == []
    assert contents(stopped) == before
    shutil.rmtree(stopped / "checkpoints")
    assert raffed.resume(stopped).hashes == raffed.run(small()).hashes


def test_a_run_that_loses_a_part_while_it_works_is_not_sealed(tmp_path: Path) -> None:
    """It could not go on, which is no request refused."""
    part = tmp_path / "run" / "metrics" / "part-000001-000002.parquet"
    with pytest.raises(RaffedError, match="the rows of round 1;") as raised:
        raffed.run(small(), tmp_path / "run", watch=lambda event: part.unlink() if event.round == 3 else None)
    assert not isinstance(raised.value, UsageError)
    assert (read_run(tmp_path / "run")["state"], read_run(tmp_path / "run").get("hashes")) == ("failed", None)


@pytest.mark.usefixtures("real_disk")
@pytest.mark.parametrize("share", one_in(3, [0.05, 0.5, 0.7, 0.95]))
def test_once_a_full_disk_has_room_the_run_goes_on_to_the_same_bits(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of vaults, servers and checkpoints is written half, and the disk is full."""
    run, sizes, write = tmp_path / "run", list[int](), Path.write_bytes

    def written(path: Path, data: bytes) -> int:
        sizes.append(len(data))
        if sum(sizes) <= room:
            return write(path, data)
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", written)
        room = 10**9
        whole = raffed.run(small(), tmp_path / "whole").hashes
        room = int(share * sum(sizes))
        sizes.clear()
        told = rf"no space left at .*; free some space, then `raffed resume {run}` continues the run$"
        with pytest.raises(DiskFullError, match=told):
            raffed.run(small(), run)
    assert list(tmp_path.rglob("*.part")) == []  # half a file would hold room that is wanted
    assert read_run(run)["state"] == "failed"
    assert str(read_run(run)["error"]).startswith("there is no space left")
    assert raffed.resume(run).hashes == whole


@pytest.mark.usefixtures("real_disk")
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


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_folder_that_can_no_longer_be_written_is_told_with_its_remedy(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Any, target: Any) -> None:
        raise OSError(code, os.strerror(code), str(target))

    remedy = rf"{os.strerror(code)}.*`raffed resume {tmp_path}/run` continues the run"
    with pytest.raises(FolderLostError, match=remedy) as told:
        raffed.run(
            small("map", 3, checkpoint_every=1),
            tmp_path / "run",
            watch=lambda event: monkeypatch.setattr(os, "replace", refused),
        )
    assert not isinstance(told.value, UsageError)  # exit code 1: work was done

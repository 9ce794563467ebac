"""An environment in which Ray cannot start is named in one line with the remedy, before anything is
started.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import NamedTuple

import pytest

from raffed.errors import UsageError
from raffed.experiments import diagnostics
from raffed.runtime.ray_backend import limits, obstacles
from raffed.runtime.ray_backend.obstacles import (
    INSIDE,
    OBSTACLES,
    SAID,
    RayStartError,
    check_machine,
    recognised,
    visible,
)
from raffed.runtime.ray_backend.own_ray import OwnRay
from raffed.runtime.ray_backend.private_folder import (
    LONGEST,
    NoFolderError,
    full_place,
    private_folder,
)
from raffed.scratch import hold, remove_left


class Usage(NamedTuple):
    """What shutil.disk_usage says about a file system, as far as it is read."""

    free: int


def _no_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(obstacles, "unfit", lambda place, inside: "no space")


def _no_loopback(patch: pytest.MonkeyPatch) -> None:
    def create_server(address: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    patch.setattr(socket, "create_server", create_server)


def _no_ports(patch: pytest.MonkeyPatch) -> None:
    def create_server(address: object) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    patch.setattr(socket, "create_server", create_server)


def _no_working_folder(patch: pytest.MonkeyPatch) -> None:
    def getcwd() -> str:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    patch.setattr(os, "getcwd", getcwd)


def _no_proc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(obstacles.sys, "platform", "linux")
    patch.setattr(obstacles.Path, "exists", lambda path: False)


STOP = {  # name in the table: (how to bring it about, a word of what is said, a word of the remedy)
    "working folder": (_no_working_folder, "No such file", "change to a folder"),
    "/proc": (_no_proc, "not mounted", "mount -t proc"),
    "Ray's folder": (_no_folder, "no space", "RAY_TMPDIR"),
    "loopback": (_no_loopback, "127.0.0.1", "ip link set lo up"),
    "ports": (_no_ports, "no port is free", "ip_local_port_range"),
    "open files": (lambda patch: patch.setattr(limits, "hard", lambda name: 64.0), "64 files", "ulimit -n"),
    "processes": (
        lambda patch: patch.setattr(limits, "threads_left", lambda: 60.0),
        "60 more",
        "--pids-limit",
    ),
    "addresses": (lambda patch: patch.setattr(limits, "soft", lambda name: 2e9), "2.0 GB", "ulimit -v"),
    "memory": (
        lambda patch: patch.setattr(obstacles, "free_memory", lambda: 1e8),
        "100 MB",
        "end other programs",
    ),
}
WARN = {
    "Ray's folder": (lambda patch: patch.setenv("RAY_TMPDIR", "/" + "x" * 90), "too long", "RAY_TMPDIR"),
    "open files": (lambda patch: patch.setattr(limits, "hard", lambda name: 512.0), "512 files", "ulimit -n"),
    "shared memory": (
        lambda patch: patch.setattr(obstacles, "shared_memory_works", lambda: False),
        "/dev/shm",
        "--shm-size",
    ),
    "another Ray": (
        lambda patch: patch.setenv("RAY_ADDRESS", "10.9.8.7:6379"),
        "10.9.8.7:6379",
        "--address auto",
    ),
}


def test_every_obstacle_of_the_table_is_tried() -> None:
    assert [one.name for one in OBSTACLES if one.stops] == list(STOP)
    assert [one.name for one in OBSTACLES if not one.stops] == list(WARN)


@pytest.mark.parametrize("name", STOP)
def test_what_stops_ray_is_told_before_ray_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bring_about, what, remedy = STOP[name]
    with monkeypatch.context() as patch:
        bring_about(patch)
        seen = {one.name for one, _ in visible() if one.stops}
        with pytest.raises(RayStartError) as refused:
            OwnRay().start()
    assert name in seen
    text = str(refused.value)
    assert "\n" not in text
    assert what in text
    assert remedy in text
    assert "--execution serial" in text
    assert isinstance(refused.value, UsageError)  # exit code 2 of every command


@pytest.mark.parametrize("name", WARN)
def test_what_ray_can_do_without_is_a_note_of_doctor_and_no_refusal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_about, what, remedy = WARN[name]
    with monkeypatch.context() as patch:
        bring_about(patch)
        check_machine()
        notes = {one.what: one for one in diagnostics.for_ray()}
    note = notes[f"for Ray: {name}"]
    assert note.state == "note"
    assert what in note.found
    assert remedy in note.advice


SPOKEN = [
    "E1125 wakeup_fd_pipe.cc:41] pipe creation failed (24): Too many open files",
    "std::bad_alloc",
    "absl::lts_20230802::SeedGenException: Failed generating seed-material for URBG.",
    "OSError: [Errno 28] No space left on device",
    "bind: Address already in use",
    "connect: Network is unreachable",
    "OSError: AF_UNIX path length cannot exceed 107 bytes: /a",
    "PermissionError: [Errno 1] Operation not permitted",
]


def test_ray_s_words_are_recognised_in_its_error_and_in_its_logs(tmp_path: Path) -> None:
    assert len(SPOKEN) == len(SAID)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "gcs_server.err"
    log.write_text("all is well\n")
    assert recognised(RuntimeError("timed out"), tmp_path) is None
    for words, (what, remedy) in zip(SPOKEN, SAID.values(), strict=True):
        told = recognised(RuntimeError(f"{words}\nand a second line"), tmp_path)
        assert told is not None
        assert what in told
        assert remedy in told
        assert "\n" not in told
        log.write_text(words)
        assert what in str(recognised(RuntimeError("timed out"), tmp_path))
        log.write_text("")


def test_a_folder_for_sockets_is_short_private_and_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, open_to_all, missing = tmp_path / ("long" * 30), tmp_path / "o", tmp_path / "m"
    long.mkdir()
    open_to_all.mkdir()
    open_to_all.chmod(
        0o777
    )  # without the sticky bit others can move a folder of ours away, and put theirs in its place
    for first in (long, open_to_all, missing):
        monkeypatch.setenv("RAY_TMPDIR", str(first))
        folder = private_folder(INSIDE, "RAY_TMPDIR")
        assert folder.parent != first
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(os.fsencode(folder)) + INSIDE <= LONGEST
        folder.rmdir()


def test_where_no_folder_will_do_each_place_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/not/there")
    with pytest.raises(NoFolderError, match=r"/not/there: .*; /tmp: too long.*set RAY_TMPDIR"):
        private_folder(LONGEST, "RAY_TMPDIR")


def test_a_place_for_temporary_files_without_room_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder itself comes first, then RAY_TMPDIR and the others."""
    full = set[Path]()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(0 if place in full else 10**9))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    assert full_place("RAY_TMPDIR", tmp_path) is None
    full.add(tmp_path / "ray")
    assert full_place("RAY_TMPDIR", tmp_path) == tmp_path / "ray"
    full.add(tmp_path)
    assert full_place("RAY_TMPDIR", tmp_path) == tmp_path


def test_a_folder_that_a_killed_process_left_is_removed_and_one_in_use_is_not(tmp_path: Path) -> None:
    names = ("raffed-aaaaaaaa", "raffed-bbbbbbbb", "raffed-cccccccc", "raffed-report")
    for name in names:
        (tmp_path / name).mkdir()
    let_go = hold(tmp_path / names[0])
    hold(tmp_path / names[1])()  # as the kernel does with what a killed process held
    remove_left(tmp_path)
    assert [(tmp_path / name).exists() for name in names] == [True, False, True, True]
    let_go()


def test_limits_of_a_container_are_read(tmp_path: Path) -> None:
    (tmp_path / "pids.max").write_text("100\n")
    (tmp_path / "pids.current").write_text("40\n")
    assert limits.threads_left(cgroup=str(tmp_path)) <= 60
    (tmp_path / "pids.max").write_text("max\n")
    assert limits.threads_left(cgroup=str(tmp_path)) > 60
    assert limits.hard("NOFILE") >= limits.soft("NOFILE") > 0
    assert limits.hard("NO_SUCH_LIMIT") == math.inf

"""Temporary folders are removed at the end; those of a killed process by the next command."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from raffed.scratch import hold, remove_left, scratch_folder
from tests.warm import python


def test_the_next_removes_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = python(
        ["-c", "import os, raffed.scratch as s\nwith s.scratch_folder(): os.kill(os.getpid(), 9)"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as first, scratch_folder() as second:
        assert set(tmp_path.iterdir()) == {first, second}
    assert not any(tmp_path.iterdir())


def test_a_folder_that_a_killed_process_left_is_removed_and_one_in_use_is_not(tmp_path: Path) -> None:
    names = ("raffed-aaaaaaaa", "raffed-bbbbbbbb", "raffed-cccccccc", "raffed-report")
    for name in names:
        (tmp_path / name).mkdir()
    let_go = hold(tmp_path / names[0])
    hold(tmp_path / names[1])()  # as the kernel does with what a killed process held
    remove_left(tmp_path)
    assert [(tmp_path / name).exists() for name in names] == [True, False, True, True]
    let_go()

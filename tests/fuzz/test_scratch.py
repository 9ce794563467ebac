"""Temporary folders are removed at the end; those of a killed process by the next command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raffed.scratch import hold, scratch_folder


def test_the_next_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in use stays, and so does one that nobody has marked."""
    code = "import os, raffed.scratch as s\nwith s.scratch_folder(): os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    held, other = tmp_path / "raffed-aaaaaaaa", tmp_path / "raffed-cccccccc"
    for folder in (held, other):
        folder.mkdir()
    let_go = hold(held)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as first, scratch_folder() as second:
        assert set(tmp_path.iterdir()) == {first, second, held, other}
    assert set(tmp_path.iterdir()) == {held, other}
    let_go()

"""A process that is forked from a warm one finds its own surroundings, as a fresh one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import python

ASKED_BEFORE = """
import os, tempfile, time
from tests.warm import settle
tempfile.gettempdir(), time.localtime()  # as a module may do that is imported before the fork
settle({{"TMPDIR": {place!r}, "TZ": "UTC-5"}}, {place!r})
print(tempfile.gettempdir(), os.getcwd(), time.localtime(0).tm_hour, sorted(os.environ), sep="|")
"""


def test_what_was_asked_before_the_fork_is_forgotten(tmp_path: Path) -> None:
    done = python(["-c", ASKED_BEFORE.format(place=str(tmp_path))])
    assert done.stdout.strip() == f"{tmp_path}|{tmp_path}|5|['TMPDIR', 'TZ']", done.stderr


def test_a_forked_process_has_the_callers_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert python(["-c", "import tempfile; print(tempfile.gettempdir())"]).stdout.strip() == str(tmp_path)

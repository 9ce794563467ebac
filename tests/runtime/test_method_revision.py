"""A run is only continued and verified by the revision of its method that began it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import raffed
from raffed.errors import RunFolderError
from raffed.methods import METHODS
from raffed.results.runfile import read_run
from raffed.runs.verify import verify
from tests.runtime.conftest import small


def stopped(method: str, path: Path) -> Path:
    rounds: list[int] = []
    raffed.run(small(method), path, watch=lambda e: rounds.append(e.round), stop=lambda: len(rounds) == 2)
    return path


def test_a_run_of_an_earlier_revision_is_refused_by_resume_and_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any method: here one that has had a single meaning, and gets a second one."""
    run = stopped("fedavg", tmp_path / "run")
    assert read_run(run)["method_revision"] == 1
    assert verify(run).ok
    monkeypatch.setitem(METHODS, "fedavg", dataclasses.replace(METHODS["fedavg"], revision=2))
    for command in (raffed.resume, verify):
        with pytest.raises(RunFolderError, match="revision 1 of fedavg, and this raffed has revision 2"):
            command(run)

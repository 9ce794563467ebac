"""A run's folder that goes away, changes its name or is closed while the run writes there: one error that
says what to do.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import FolderLostError, UsageError
from tests.runtime.conftest import small

Change = Callable[[Path], None]


def renamed(path: Path) -> None:
    path.rename(path.with_name("moved"))


def exchanged(path: Path) -> None:
    renamed(path)
    path.mkdir()


def run_in(path: Path, change: Change, method: str = "map") -> FolderLostError:
    """What a run raises under whose folder something changes after its first round."""
    config = small(method, 3)
    config = replace(config, runtime=replace(config.runtime, checkpoint_every=1))

    def watch(event: Any) -> None:
        if event.round == 1:
            change(path)

    with pytest.raises(FolderLostError) as told:
        raffed.run(config, path, watch=watch)
    assert not isinstance(told.value, UsageError)  # exit code 1: work was done
    return told.value


def test_a_folder_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    assert str(run_in(tmp_path / "run", lambda path: shutil.rmtree(path))).startswith(
        f"{tmp_path}/run was renamed or removed while the run"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [renamed, exchanged])
def test_a_folder_that_was_renamed_resumes_to_the_same_bits(change: Change, tmp_path: Path) -> None:
    error = run_in(tmp_path / "run", change)
    assert f"`raffed resume {tmp_path}/run` continues the run" in str(error)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())
    config = small("map", 3)
    assert raffed.resume(tmp_path / "moved").hashes == raffed.run(config).hashes


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_folder_that_can_no_longer_be_written_is_told_with_its_remedy(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Any, target: Any) -> None:
        raise OSError(code, os.strerror(code), str(target))

    with monkeypatch.context() as patched:
        error = str(run_in(tmp_path / "run", lambda path: patched.setattr(os, "replace", refused)))
    assert os.strerror(code) in error
    assert f"`raffed resume {tmp_path}/run` continues the run" in error


def test_a_folder_that_is_gone_when_the_result_is_read_is_lost_and_not_refused(tmp_path: Path) -> None:
    """On Ray seconds pass between the last round and the result."""

    def watch(event: Any) -> None:
        if event.round == event.rounds:
            exchanged(tmp_path / "run")

    with pytest.raises(FolderLostError, match="renamed") as told:
        raffed.run(small("fedavg", 2), tmp_path / "run", watch=watch)
    assert "raffed resume" in str(told.value)
    assert not isinstance(told.value, UsageError)

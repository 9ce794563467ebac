"""Whatever write a run is killed before or after, its files are as run.json says, and it goes on to the
same bits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from tests.forging import edited
from tests.runtime.conftest import small

STEP = 9  # of the fast test


def snapshots(
    run: Path, work: Callable[[], object], into: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Path]:
    """Copies of a run's folder as a kill would leave it: before each of its files takes its name, and
    after it.
    """
    replace, made = os.replace, list[Path]()

    def copied(source: Any, target: Any, **kwargs: Any) -> None:
        own = Path(target).parent in (run, run / "metrics", run / "checkpoints")
        for done in (False, True):
            if done:
                replace(source, target, **kwargs)
            if own and (run / "run.json").exists():
                made.append(Path(shutil.copytree(run, into / f"{len(made):03d}")))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", copied)
        work()
    return made


def goes_on(folder: Path, hashes: dict[str, str]) -> None:
    read_metrics(folder)  # raises for a part that run.json does not know, or that has other bytes
    assert raffed.resume(folder).hashes == hashes
    parts = {f"metrics/{path.name}" for path in (folder / "metrics").iterdir()}
    assert len(parts) == 1
    assert parts < set(read_run(folder)["files"])


@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_at_a_write_goes_on(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, hashes = tmp_path / "run", raffed.run(small()).hashes
    made = snapshots(run, lambda: raffed.run(small(), run), tmp_path / "killed", monkeypatch)
    assert len(made) > 24
    for folder in made[::step]:
        goes_on(folder, hashes)


@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.slow)])
def test_a_resume_that_shortens_a_part_and_is_killed_at_a_write_goes_on(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are in one part, and the last checkpoint is gone: the rows of rounds 3 and 4 have to be
    cut off.
    """
    run, hashes = tmp_path / "run", raffed.run(small(), tmp_path / "run").hashes

    def unfinished(about: dict[str, Any]) -> None:
        del about["hashes"], about["round_hashes"]
        about["state"] = "stopped"

    edited(run / "run.json", unfinished)
    shutil.rmtree(run / "checkpoints" / "round-000004")
    made = snapshots(run, lambda: raffed.resume(run), tmp_path / "killed", monkeypatch)
    assert len(made) > 12
    assert any((folder / "metrics" / "part-000001-000002.parquet").exists() for folder in made)
    for folder in made[::step]:
        goes_on(folder, hashes)

"""One trial, without Tune: which run its folder holds at the end, and what is kept of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.results import read_run
from raffed.results.runfile import SWEEP_FILE
from raffed.runs.folder import run_config
from raffed.search.request import Request
from raffed.search.trainable import TrialTask, federation, make_room

BASE = RunConfig(
    data=Data(split="p4c5", validation=0.2),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(epochs=1),
    federation=Federation(rounds=2),
    runtime=Runtime(execution="serial"),
)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Tune would be told."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("ray.tune.report", found.append)
    return found


def repeat(folder: Path, lr: float, **runtime: Any) -> Path:
    """The final run with seed 1 of a choice, in the folder of a sweep."""
    final = folder / "fedavg" / "final"
    final.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).touch()
    base = replace(BASE, runtime=replace(BASE.runtime, **runtime))
    task = TrialTask(Request(base, ("fedavg",)), "fedavg", str(final), {"local.lr": lr})
    asked, place = task.run({"seed": 1})
    make_room(place, asked, final=True)  # as the sweep does before it begins its final runs
    federation({"seed": 1}, task)
    return final / "seed-1"


def test_a_final_run_of_an_earlier_choice_is_run_again(tmp_path: Path, reports: list[dict[str, Any]]) -> None:
    kept = repeat(tmp_path / "a", 0.001)
    first = read_run(kept)
    assert repeat(tmp_path / "a", 0.1) == kept
    second = read_run(kept)
    assert (run_config(kept).local.lr, second["state"]) == (0.1, "finished")
    assert second["run_id"] != first["run_id"]
    assert second["hashes"] == read_run(repeat(tmp_path / "b", 0.1))["hashes"] != first["hashes"]


def test_a_final_run_of_the_same_choice_is_kept_wherever_it_goes_on(
    tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    kept = repeat(tmp_path, 0.1)
    before = (kept / "run.json").stat().st_mtime_ns
    told = len(reports)
    repeat(tmp_path, 0.1, max_restarts=3, checkpoint_every=1)
    assert (kept / "run.json").stat().st_mtime_ns == before
    assert reports[told:] == reports[:told] != []

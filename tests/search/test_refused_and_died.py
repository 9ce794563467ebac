"""A sweep that the cluster cannot execute leaves nothing, and a trial whose process died has failed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.sweeps import Sweep, tuning_table
from raffed.errors import RunFolderError, UsageError
from raffed.results import read_run
from raffed.results.runfile import RUN_FILE, write_json
from raffed.results.sweep_file import read_sweep
from raffed.search.ray_tune import outcome
from raffed.search.request import Request
from raffed.search.trials import Trial, read_trial
from tests.cli.conftest import Cli
from tests.search.conftest import QUICK

pytestmark = pytest.mark.usefixtures("ray_here")
SESSION = "raffed.runtime.ray.session.RaySession.wait"
SHARED = "raffed.search.ray_tune.check_shared"
ROOM = "raffed.search.ray_tune.placement"


@pytest.mark.more
@pytest.mark.parametrize(
    ("place", "error"),
    [
        (SESSION, UsageError("--address 127.0.0.1:1: nothing answers there")),
        (SHARED, RunFolderError("cannot be seen by 1 of 2 nodes")),
        (ROOM, UsageError("a trial of 2 actors with 0.5 GPU each needs 1 GPUs, but there are only 0")),
    ],
)
def test_a_sweep_that_the_cluster_refuses_leaves_no_folder(
    place: str, error: Exception, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: object) -> None:
        raise error

    monkeypatch.setattr(place, refuse)
    ended = cli("tune", "--method", "fedavg", *QUICK, "--out", tmp_path / "a")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == f"raffed: {error}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
def test_a_trial_whose_process_died_has_failed_and_one_that_runs_has_not(swept: Path, tmp_path: Path) -> None:
    """A process that dies leaves a run.json that says it is running."""
    sweep = tmp_path / "a"
    shutil.copytree(swept, sweep)
    about = read_sweep(sweep)
    request = Request.from_dict(about["request"])
    known = [Trial.from_dict(one) for one in about["methods"]["fedmr"]["trials"]]
    (first, *others) = [one for one in known if one.state == "finished"]
    folder = sweep / "fedmr" / "trials" / first.name
    write_json(folder / RUN_FILE, read_run(folder) | {"state": "running"})

    running = replace(first, state="running")
    assert read_trial(request, folder, running).state == "running"
    assert read_trial(request, folder, replace(first, state="failed")).state == "failed"
    died = read_trial(request, folder, running, "The actor died")
    assert (died.state, died.error, died.ended) == ("failed", "The actor died", False)

    diverged = [one for one in known if one.state == "failed"]
    about["methods"] = {"fedmr": about["methods"]["fedmr"] | outcome([died, *others, *diverged])}
    table = tuning_table(Sweep(sweep, dict(about)))
    assert table.rows[0][table.titles.index("Failed")] == str(1 + len(diverged))

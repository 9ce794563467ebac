"""Two `raffed reproduce` commands at the same time, in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.config.sections import Runtime
from raffed.errors import RunFolderError
from raffed.results import lock
from raffed.tables.catalogue import find_item
from raffed.tables.planner import PlannedRun, execute_runs, planned_runs
from tests.cli.conftest import Cli


@pytest.mark.more
def test_two_commands_that_meet_at_a_run_share_the_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second leaves that run to the first, does the others, and says that its table is not complete."""
    monkeypatch.setattr(lock, "PATIENCE", 0.0)
    only = ["famnist lenet", "fedavg,fedrs"]
    asked = ["reproduce", "map/table2", "--only", only[0], "--only", only[1], "--out", tmp_path]
    runtime = Runtime(execution="serial")
    first, second = planned_runs(find_item("map/table2"), "smoke", tmp_path, only, 1, runtime)
    with lock.held(first.folder, "process 7 on host h"):
        done = cli(*asked)
    assert done.code == 1
    assert "another command works on 1 run, which the tables leave out" in done.err
    assert "repeat this command" in done.err
    assert not first.done
    assert second.done
    assert cli(*asked).code == 0
    assert first.done


def test_a_run_that_another_command_finished_in_the_meantime_is_taken(tmp_path: Path) -> None:
    job = planned_runs(find_item("map/table2"), "smoke", tmp_path, ["fedavg"], 1)[0]

    def finished_elsewhere(job: PlannedRun) -> None:
        job.folder.mkdir(parents=True)
        (job.folder / "run.json").write_text('{"state": "finished"}')
        raise RunFolderError("already holds a run (finished)")

    def damaged(job: PlannedRun) -> None:
        raise RunFolderError("is damaged")

    with pytest.raises(RunFolderError, match="damaged"):
        execute_runs([job], damaged, None)
    (after,) = execute_runs([job], finished_elsewhere, None)
    assert after.left_out == ""

"""A trial that the search ended on purpose has neither failed nor been interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.results.runfile import read_run, write_json
from raffed.runs.run import mark_pruned


@pytest.mark.more
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"state": "running"}, ("stopped", "pruned: the search ended this trial early")),
        (
            {"state": "stopped", "error": "interrupted"},
            ("stopped", "pruned: the search ended this trial early"),
        ),
        ({"state": "finished"}, ("finished", None)),
    ],
)
def test_the_run_of_a_pruned_trial_says_so(
    before: dict[str, str], after: tuple[str, str | None], runs: Path
) -> None:
    run = {**read_run(runs / "finished"), **before}
    if "error" not in before:
        run.pop("error", None)
    write_json(runs / "finished" / "run.json", run)
    mark_pruned(runs / "finished")
    found = read_run(runs / "finished")
    assert (found["state"], found.get("error")) == after


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    import raffed
    from tests.runtime.conftest import small

    raffed.run(small(), tmp_path / "finished")
    return tmp_path

"""`raffed reproduce` with items that are studies: planned, carried out, resumed by seed, reported without
a federated run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from raffed.reproductions.studies import STUDIES

from raffed.tables.catalogue import find_item
from raffed.tables.items import Item
from raffed.tables.planner import planned_studies, state, study_folder, within_budget
from raffed.tables.studies import StudyInfo
from tests.cli.conftest import Cli

FIGURE = "fedmr/fig2"


def made(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.rglob("study.json")}


@pytest.mark.more
def test_a_study_leaves_rows_item_table_and_report_and_is_not_made_twice(tmp_path: Path, cli: Cli) -> None:
    done = cli("reproduce", FIGURE, "--seeds", "2", "--out", tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "fedmr" / "fig2" / "smoke"
    about = json.loads((folder / "item.json").read_text())
    assert [(folder / name / "study.json").exists() for name in about["studies"]] == [True, True]
    assert "2 of 2 seeds" in (folder / "table.md").read_text()
    assert "45.000°" in (folder / "report" / "report.html").read_text()
    before = made(tmp_path)
    assert set(before) == {"study-averaged_classifiers-s0", "study-averaged_classifiers-s1"}
    assert "study for 1 seed (" in cli("reproduce", FIGURE, "--seeds", "3", "--out", tmp_path).err
    after = made(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 3


def test_a_plan_makes_nothing_and_the_list_tells_the_state(tmp_path: Path, cli: Cli) -> None:
    assert (
        "study for 3 seeds" in cli("reproduce", FIGURE, "--scale", "proxy", "--plan", "--out", tmp_path).err
    )
    assert not list(tmp_path.iterdir())
    assert state(find_item(FIGURE), tmp_path) == "never run"
    cli("reproduce", FIGURE, "--out", tmp_path)
    assert state(find_item(FIGURE), tmp_path) == "smoke"


def test_a_report_on_studies_alone_needs_no_run(tmp_path: Path, cli: Cli) -> None:
    cli("reproduce", FIGURE, "--out", tmp_path / "r")
    done = cli("report", tmp_path / "r", "--out", tmp_path / "report")
    assert (done.code, done.err) == (0, "")
    text = (tmp_path / "report" / "report.html").read_text()
    assert "second row is 45°" in text
    assert text.count("<picture>") == 1


def test_json_tells_of_a_study_line_by_line(tmp_path: Path, cli: Cli) -> None:
    events = cli("reproduce", FIGURE, "--json", "--out", tmp_path).events
    assert [event["event"] for event in events] == ["study", "table"]


def test_a_study_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    item = Item("map", "fig99", "t", study="phrenology")
    assert item.missing() == ("study phrenology",)
    assert [job.left_out for job in planned_studies(item, "smoke", tmp_path, 1)] == [
        "missing: study phrenology"
    ]
    monkeypatch.setitem(STUDIES, "phrenology", STUDIES["averaged_classifiers"])
    assert item.missing() == ()


def test_a_study_is_left_out_where_its_data_or_the_time_for_it_are_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seconds = {"smoke": 60.0, "proxy": 600.0, "full": 6000.0}
    monkeypatch.setitem(STUDIES, "phrenology", StudyInfo("t", seconds, {"full": ("mnist",)}))
    item = Item("map", "fig99", "t", study="phrenology")
    full = planned_studies(item, "full", tmp_path, 1, root=str(tmp_path))
    assert "train-images-idx3-ubyte" in full[0].left_out
    found = within_budget(planned_studies(item, "smoke", tmp_path, 2), 100.0)
    assert [job.left_out for job in found] == ["", "does not fit into the budget"]


def test_seeds_and_scales_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = {study_folder("a", scale, tmp_path, seed) for scale in ("smoke", "full") for seed in (0, 1)}
    assert len(folders) == 4

"""`--plan` lists what would run, and runs nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raffed.cli import tables
from raffed.cli.left_out import as_wide_as_stderr, stated
from raffed.cli.planning import item_rows, show_plan
from raffed.config.run import RunConfig
from raffed.experiments.reproduction import estimates
from raffed.experiments.reproduction.items import Cell
from raffed.experiments.reproduction.planner import Planned, PlannedRun
from tests.cli.conftest import Cli


def test_a_comparison_lists_its_runs(cli: Cli, tmp_path: Path) -> None:
    words = ["compare", "--method", "fedavg", "--method", "map", "--plan", "--out", tmp_path / "a"]
    done = cli(*words, "--json")
    assert done.code == 0, done.err
    [event] = done.events
    assert [(row["method"], row["seed"], row["state"]) for row in event["rows"]] == [
        ("fedavg", "0", "new"),
        ("map", "0", "new"),
    ]
    done = cli(*words, "--seeds", 2)
    assert "4 runs, 0 finished; nothing was run (--plan)" in done.out
    assert list(tmp_path.iterdir()) == []


def test_a_search_lists_its_trials_after_its_checks(cli: Cli, tmp_path: Path) -> None:
    words = ["tune", "--method", "fedprox", "--rounds", 4, "--plan", "--out", tmp_path / "a"]
    done = cli(*words, "--grid", "mu=1e-2..1:log:3", "--json")
    assert done.code == 0, done.err
    [event] = done.events
    assert [row["setting"] for row in event["rows"]] == ["mu=0.01", "mu=0.1", "mu=1.0"]
    assert event["summary"] == "3 trials of 4 rounds, then 3 final runs"
    assert cli(*words, "--grid", "mu=-2,-1").code == 2
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").touch()
    taken = cli(*words)
    assert (taken.code, "is not an empty folder; choose another --out" in taken.err) == (2, True)


def test_a_table_lists_its_cells_and_neither_probes_nor_reads_data(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "sizes_of", None)  # whoever calls it fails
    monkeypatch.delenv("RAFFED_DATA", raising=False)
    words = ["reproduce", "fedmr/table6", "--scale", "full", "--only", "fmnist p5c2", "--plan", "--json"]
    done = cli(*words, "--out", tmp_path / "r")
    assert done.code == 0, done.err
    [event] = done.events
    assert len(event["rows"]) == 4
    assert {row["runs"] for row in event["rows"]} == {"3"}
    assert "probing" not in done.err
    assert list(tmp_path.iterdir()) == []


LONG = (
    "diverged: FedAdam, round {}, client 3, tensor body.fc1.weight: a value is not finite; try a smaller lr"
)


def _jobs(folder: Path) -> list[Planned]:
    cell = Cell("FedAdam", "P10C2", RunConfig(), {})
    about: dict[str, Any] = {"cells": (cell,), "config": RunConfig()}
    diverged = [
        PlannedRun(seed=0, folder=folder / str(n), left_out=LONG.format(n), trial={"mu": 0.1}, **about)
        for n in (1, 2)
    ]
    missing = PlannedRun(seed=0, folder=folder / "3", left_out="missing: method flda", **about)
    return [*diverged, missing, PlannedRun(seed=0, folder=folder / "4", **about)]


def test_a_cell_says_in_a_few_words_what_is_left_out(tmp_path: Path) -> None:
    [row] = item_rows(_jobs(tmp_path), set(), brief=True)
    assert row["left out"] == "diverged, 2 trials; missing: method flda, 1 run"
    assert (row["runs"], row["finished"]) == ("1", "0")
    [whole] = item_rows(_jobs(tmp_path), set(), brief=False)
    assert whole["left out"] == f"{LONG.format(1)}; {LONG.format(2)}; missing: method flda"


def test_a_long_reason_is_stated_once_for_each_kind(tmp_path: Path) -> None:
    many, short = stated(_jobs(tmp_path), set())
    assert many.startswith(
        "2 left out: diverged, for 2 reasons that --plan --json lists. The first: FedAdam, "
    )
    assert many.endswith("; try a smaller lr")
    assert short == "1 left out: missing: method flda"
    assert stated(_jobs(tmp_path)[1:], {tmp_path / "3"}) == [f"1 left out: {LONG.format(2)}"]


def test_the_table_of_a_plan_stands_whole_in_eighty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "console", lambda: Console(width=80, highlight=False))
    show_plan(item_rows(_jobs(tmp_path), set(), brief=True), "1 cell", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["row", "column", "runs", "finished", "left", "out"]
    assert len(lines) <= 7  # titles, a rule, a cell of two lines, two empty lines and the summary


def test_lines_about_a_plan_are_folded_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert as_wide_as_stderr(["a title", f"  1 left out: {'many words ' * 6}".rstrip()]) == (
        "a title\n  1 left out: many words many words many\n    words many words many words many\n    words"
    )

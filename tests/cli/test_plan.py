"""`--plan` lists what would run, and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.tables import estimates
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

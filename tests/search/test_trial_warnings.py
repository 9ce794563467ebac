"""Warnings of a trial's process reach the command, which counts each of them once."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raffed.cli.messages import repeated_warnings
from raffed.cli.screen import make_screen
from raffed.results.sweep_file import read_sweep
from raffed.search import trainable
from raffed.search.ledger import shown
from raffed.search.trainable import Progress, Report, warnings_in, with_warnings
from tests.cli.conftest import Cli

ROW = {"round": 2, "score": 0.5}


def test_a_report_carries_the_texts_that_came_since_the_last_one() -> None:
    texts = ["one\n  of two lines", "two"]
    report = with_warnings(ROW, texts)
    assert warnings_in(report) == ("one of two lines", "two")
    assert texts == []
    assert with_warnings(ROW, texts) == ROW
    assert warnings_in(ROW) == ()


def test_a_report_that_tune_passes_on_again_does_not_repeat_its_warnings() -> None:
    heard: list[tuple[str, tuple[str, ...]]] = []

    def listener(state: str, trial: Any, report: Report) -> None:
        heard.append((state, warnings_in(report)))

    report = with_warnings(ROW, ["of the trial"])
    first, second = (SimpleNamespace(trial_id=name, last_result=report) for name in "ab")
    progress = Progress(listener, {"b"})
    for trial in (first, second):
        progress.on_trial_result(1, [], trial, report)
        progress.on_trial_complete(1, [], trial)
    assert heard == [
        ("running", ("of the trial",)),
        ("done", ()),
        ("running", ("of the trial",)),
        ("pruned", ()),
    ]


def test_the_board_counts_the_warnings_of_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with repeated_warnings(["tune"]):
        for name in "ab":
            trial = shown(name, {}, "running", with_warnings(ROW, ["odd setting"]))
            event = {"event": "trial", "method": "fedavg", **trial.as_dict()}
            make_screen(as_json=False).show(event, rounds=2, warnings=trial.warnings)
    assert capsys.readouterr().err.splitlines() == ["raffed: 2 warnings:", "  odd setting (2 times)"]


def test_a_trial_sends_its_warnings_with_its_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Report] = []
    monkeypatch.setattr(trainable.tune, "report", reports.append)

    def execute(config: Any, task: Any, warned: list[str]) -> None:
        for number in (1, 2):
            logging.getLogger("raffed.runs.run").warning("round %d", number)
            trainable.tune.report(with_warnings({"round": number}, warned))

    monkeypatch.setattr(trainable, "execute_trial", execute)
    trainable.federation({}, SimpleNamespace())  # type: ignore[arg-type]
    assert [warnings_in(one) for one in reports] == [("round 1",), ("round 2",)]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_search_ends_with_the_warnings_of_its_trials(cli: Cli, tmp_path: Path) -> None:
    words = ["tune", "--method", "scaffold", "--momentum", 0, "--weight-decay", 0.01, "--split", "p4c3"]
    size = ["--samples", 200, "--rounds", 1, "--grid", "local.lr=0.05,0.1", "--seeds", 1, "--at-once", 1]
    done = cli(*words, *size, "--out", tmp_path / "s")
    assert done.code == 0, done.err
    [line] = [line for line in done.err.splitlines() if "SCAFFOLD overrides local.weight_decay" in line]
    assert line.startswith("  ")
    assert "times)" in line


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_optuna_draws_from_ranges_and_the_report_shows_it_in_few_digits(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = [
        "tune",
        "--method",
        "fedprox",
        "--split",
        "p4c5",
        "--samples",
        200,
        "--rounds",
        1,
        "--at-once",
        1,
    ]
    ranges = ["--grid", "mu=1e-4..1:log", "--grid", "local.lr=0.01..0.3:log"]
    search = ["--search", "optuna", "--trials", 3, "--seeds", 1]
    done = cli(*words, *ranges, *search, "--out", tmp_path / "s")
    assert done.code == 0, done.err
    assert "A new study" not in done.err
    trials = read_sweep(tmp_path / "s")["methods"]["fedprox"]["trials"]
    assert len({one["settings"]["mu"] for one in trials}) == 3
    assert all(1e-4 <= float(one["settings"]["mu"]) <= 1 for one in trials)
    assert cli("report", tmp_path / "s", "--out", tmp_path / "report").code == 0
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    chosen = read_sweep(tmp_path / "s")["methods"]["fedprox"]["chosen"]
    assert chosen is not None
    assert f"mu={float(str(chosen['settings']['mu'])):.4g}" in page
    assert "score of each finished trial in the order of the search" in page

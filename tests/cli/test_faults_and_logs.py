"""Faults, privacy and what is shown of a run, as options of `raffed run`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from raffed.runtime import logs
from tests.cli.conftest import QUICK, Cli


def test_a_run_takes_a_plan_masks_and_json_logs(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout holds the events, stderr a JSON line a round with the run's id; the plan stands in run.json."""
    monkeypatch.setenv(logs.VARIABLE, "")  # put back afterwards
    logger = logging.getLogger("raffed")
    before = logger.handlers[:], logger.level, logger.propagate
    (tmp_path / "plan.toml").write_text('straggle = 1.0\nat = "drop 0@1"\n')
    out = tmp_path / "run"
    try:
        done = cli("--log-json", "run", "--method", "fedavg", "--rounds", "1", *QUICK, "--faults", tmp_path / "plan.toml",
                   "--masks", "--clip-update", "5", "--json", "--out", out)  # fmt: skip
    finally:
        logger.handlers[:], logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
        logs.of_run("")
    assert done.code == 0, done.err
    about = read_run(out)
    assert (about["config"]["faults"]["at"], about["config"]["privacy"]["clip"]) == ("drop 0@1", 5.0)
    assert about["config"]["privacy"]["masks"] is True
    [event] = [one for one in done.events if one["event"] == "round"]
    assert (event["participants"], event["straggling"]) == (3, 3)  # 4 clients, one dropped out
    [line] = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert (line["run_id"], line["round"], line["straggling"]) == (about["run_id"], 1, 3)


def test_a_plan_that_is_not_there_is_an_error_before_anything_starts(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *QUICK, "--faults", tmp_path / "none.toml", "--out", tmp_path / "run")
    assert done.code == 2
    assert "none.toml" in done.err
    assert not (tmp_path / "run").exists()

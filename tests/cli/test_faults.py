"""Faults, privacy and what is shown of a run, as options of `raffed run`."""

from __future__ import annotations

from pathlib import Path

from raffed.results.runfile import read_run
from tests.cli.conftest import QUICK, Cli


def test_a_run_takes_a_plan_and_masks(cli: Cli, tmp_path: Path) -> None:
    """stdout holds the events, and the plan stands in run.json."""
    (tmp_path / "plan.toml").write_text('straggle = 1.0\nat = "drop 0@1"\n')
    out = tmp_path / "run"
    done = cli(
        *("run", "--method", "fedavg", "--rounds", "1", *QUICK, "--faults", tmp_path / "plan.toml"),
        *("--masks", "--clip-update", "5", "--json", "--out", out),
    )
    assert done.code == 0, done.err
    about = read_run(out)
    assert (about["config"]["faults"]["at"], about["config"]["privacy"]["clip"]) == ("drop 0@1", 5.0)
    assert about["config"]["privacy"]["masks"] is True
    [event] = [one for one in done.events if one["event"] == "round"]
    assert (event["participants"], event["straggling"]) == (3, 3)  # 4 clients, one dropped out


def test_a_fault_in_a_round_that_never_comes_is_refused(cli: Cli, tmp_path: Path) -> None:
    """One that begins within the run may last beyond it."""
    plan = tmp_path / "plan.toml"
    asked = ["run", *QUICK, "--rounds", 2, "--faults", plan, "--quiet", "--out"]
    plan.write_text('at = "drop 1@1, drop 3@3-200"\n')
    done = cli(*asked, tmp_path / "a")
    assert (done.code, done.err) == (2, "raffed: faults.at names round 3; rounds are 1 to 2\n")
    plan.write_text('at = "drop 3@2-200"\n')
    assert cli(*asked, tmp_path / "b").code == 0


def test_a_plan_that_is_not_there_is_an_error_before_anything_starts(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *QUICK, "--faults", tmp_path / "none.toml", "--out", tmp_path / "run")
    assert done.code == 2
    assert "none.toml" in done.err
    assert not (tmp_path / "run").exists()

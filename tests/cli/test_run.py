"""`raffed run`, `compare` and `report` from the outside: streams, files, exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import raffed
from raffed import Data, Federation, RunConfig, Runtime
from raffed.cli.tables import show_result
from raffed.own import resolve
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from tests.cli.conftest import QUICK, Cli
from tests.own.conftest import lab

__all__ = ["lab"]


def test_json_is_all_there_is_on_stdout_and_agrees_with_the_folder(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = cli("run", "--method", "fedrs", "--rounds", 3, "--local-test", 0.2, "--json", *QUICK, "--out", out)
    assert (done.code, done.err) == (0, "")
    events = done.events
    assert [event["event"] for event in events] == ["round", "round", "round", "finished"]
    assert [event["round"] for event in events[:3]] == [1, 2, 3]
    about = read_run(out)
    assert events[-1]["hashes"] == about["hashes"]
    assert events[-1]["folder"] == str(out)
    assert events[-1]["accuracy"] == events[-2]["accuracy"]
    assert events[-1]["personalization"] == events[-2]["personal"]
    assert events[-1]["accuracy_best"] == max(event["accuracy"] for event in events[:3])
    assert 0 < events[-1]["personalization_by_samples"] <= 1
    assert about["state"] == "finished"
    assert set(read_metrics(out)["round"].to_pylist()) == {1, 2, 3}


def test_a_preset_is_an_argument_of_each_method_that_has_it(cli: Cli, tmp_path: Path) -> None:
    """`--preset authors` is `--set preset=authors`."""
    said = [*QUICK, "--rounds", 1, "--quiet", "--out"]
    both = tmp_path / "both"
    assert cli("compare --method fedavg --method fedprox --preset authors", *said, both).code == 0
    found = [read_run(one.parent)["config"] for one in both.glob("*/run.json")]
    args = {config["method"]: config["args"] for config in found}
    assert args == {"fedavg": {}, "fedprox": {"preset": "authors"}}


def test_compare_runs_every_method_and_reports(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "both"
    asked = ["compare --method fedrs --method fedavg --set alpha=1.0 --rounds 2", *QUICK, "--out", out]
    first = cli(*asked, "--json")
    assert first.code == 0
    assert [event["event"] for event in first.events] == [*(["round"] * 2 + ["finished"]) * 2, "report"]
    # FedRS with α = 1 is FedAvg
    assert first.events[2]["hashes"]["weights"] == first.events[5]["hashes"]["weights"]
    assert len(first.events[-1]["runs"]) == 2
    assert (out / "report" / "report.html").stat().st_size > 1000
    again = cli(*asked)
    assert again.code == 0
    assert "round 1" not in again.out
    assert "FedRS" in again.out or "fedrs" in again.out


def test_a_method_that_diverges_keeps_no_other_from_being_compared(cli: Cli, tmp_path: Path) -> None:
    asked = ["compare --method fedprox --method fedavg --set fedprox.mu=1e6 --rounds 2", *QUICK]
    done = cli(*asked, "--out", tmp_path / "both")
    assert done.code == 1
    assert "FedProx: the training loss of client 0 in round 1 is nan" in done.err
    why = "raffed: 1 of 2 runs did not finish: fedprox (diverged); the reasons are above\n"
    assert done.err.endswith(why)
    states = {name: read_run(tmp_path / "both" / name)["state"] for name in ("fedprox", "fedavg")}
    assert states == {"fedprox": "failed", "fedavg": "finished"}
    assert "FedProx" in (tmp_path / "both" / "report" / "report.html").read_text()
    again = cli(*asked, "--json", "--out", tmp_path / "both")
    assert again.code == 1
    assert [event["event"] for event in again.events] == ["failed", "finished", "report", "error"]
    assert (again.events[0]["method"], again.events[1]["method"]) == ("fedprox", "fedavg")


def test_extend_keeps_the_folder_and_fork_takes_the_options_of_run(cli: Cli, tmp_path: Path) -> None:
    short, out = tmp_path / "short", tmp_path / "fork"
    assert cli("run --rounds 2 --quiet", *QUICK, "--out", short).code == 0
    done = cli("extend", short, "--rounds", 3, "--json")
    assert (done.code, done.err) == (0, "")
    assert [event["round"] for event in done.events[:-1]] == [3]
    assert read_run(short)["rounds_done"] == 3
    done = cli("fork", short, "--at", 1, "--lr", 0.01, "--rounds", 3, "--quiet", "--out", out)
    assert (done.code, done.out.strip()) == (0, str(out))
    assert read_run(out)["config"]["local"]["lr"] == 0.01
    refused = cli("fork", short, "--rounds", 4, "--out", short)
    assert (refused.code, "already holds a run" in refused.err) == (2, True)


def test_a_run_takes_a_plan_of_faults_masks_and_clipping(cli: Cli, tmp_path: Path) -> None:
    """The plan stands in run.json. A fault in a round that never comes is refused."""
    plan, out = tmp_path / "plan.toml", tmp_path / "run"
    plan.write_text('straggle = 1.0\nat = "drop 0@1"\n')
    done = cli("run --rounds 1 --masks --clip-update 5 --json", *QUICK, "--faults", plan, "--out", out)
    assert done.code == 0, done.err
    config = read_run(out)["config"]
    assert (config["faults"]["at"], config["privacy"]["clip"]) == ("drop 0@1", 5.0)
    assert config["privacy"]["masks"] is True
    [event] = [one for one in done.events if one["event"] == "round"]
    assert (event["participants"], event["straggling"]) == (3, 3)  # 4 clients, one dropped out
    plan.write_text('at = "drop 1@1, drop 3@3-200"\n')
    done = cli("run --rounds 2", *QUICK, "--faults", plan, "--out", tmp_path / "a")
    assert (done.code, done.err) == (2, "raffed: faults.at names round 3; rounds are 1 to 2\n")


def test_report_needs_runs(cli: Cli, tmp_path: Path, finished: Path) -> None:
    nothing = cli("report", tmp_path, "--out", tmp_path / "report")
    assert nothing.code == 2
    assert "no run to report on" in nothing.err
    done = cli("report", finished, tmp_path / "gone", "--out", tmp_path / "report")
    assert done.code == 0
    assert "gone" in done.err
    assert str(tmp_path / "report" / "report.html") in done.out


def test_a_bug_keeps_its_traceback(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("raffed.runs.run.run_events", broken)
    from raffed.cli import main

    with pytest.raises(ZeroDivisionError):
        main(["run", "--json", *QUICK, "--out", str(tmp_path / "run")])
    (event,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert event == {"event": "error", "kind": "ZeroDivisionError", "message": "a bug", "exit_code": 1}


def test_a_run_ends_with_its_best_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round 1 is made the best one. The clients' scores become 1 of 4 and 9 of 16, that is 10 of 20."""
    config = RunConfig(
        data=Data("digits", "iid:2", local_test=0.3),
        federation=Federation(rounds=2),
        runtime=Runtime(execution="serial"),
    )
    result, rows = raffed.run(config, out=tmp_path / "run"), []
    for row in result.metrics.to_pylist():
        if (row["split"], row["metric"], row["class"], row["round"]) == ("test", "accuracy", None, 1):
            row["value"] = 0.995
        if (row["model"], row["metric"]) == ("personal", "accuracy"):
            late = {0: (0.25, 4), 1: (0.5625, 16), None: (0.40625, 2)}
            row["value"], row["n"] = late[row["client"]] if row["round"] == 2 else (0.75, 4)
        rows.append(row)
    changed = replace(result, metrics=pa.Table.from_pylist(rows, schema=result.metrics.schema))
    assert changed.accuracy_best == (0.995, 1)
    assert changed.personalization_by_samples[0] == 0.5
    show_result(changed)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "aggregation, best round 99.5 % (round 1, chosen on the test set)" in lines
    assert "personalization 40.6 %" in lines
    assert "personalization by samples 50.0 %, best 75.0 % (round 1)" in lines


# What `--on-round`, `--profile`, `--plan` and `raffed leakage` add to a run, and no bit of it.

SHORT_RUN = "run --split p4c3 --samples 200 --execution serial --rounds 3"
WATCH = """
seen = []

def note(event):
    seen.append(event.round)

def fails(event):
    if event.round == 2:
        raise KeyError('no such thing')
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("watch.py").write_text(WATCH)
    return tmp_path


def test_the_function_receives_each_round_and_changes_no_bit(cli: Cli, here: Path) -> None:
    assert cli(SHORT_RUN, "--on-round", "./watch.py:note", "--out", "a").code == 0
    assert cli(SHORT_RUN, "--out", "b").code == 0
    assert resolve.load("./watch.py:seen") == [1, 2, 3]
    one, other = (read_run(Path(name)) for name in "ab")
    assert (one["hashes"], one["identity"]) == (other["hashes"], other["identity"])


def test_an_error_in_it_names_its_line_and_leaves_a_run_that_can_be_resumed(cli: Cli, here: Path) -> None:
    refused = cli(SHORT_RUN, "--on-round", "./watch.py:seen", "--out", "a")
    assert (refused.code, Path("a").exists()) == (2, False)
    done = cli(SHORT_RUN, "--on-round", "./watch.py:fails", "--out", "a")
    assert done.code == 1
    assert f"{here}/watch.py:9: KeyError: 'no such thing'" in done.err
    assert raffed.resume("a").state == "finished"


def test_seconds_of_a_round_add_up(cli: Cli, here: Path) -> None:
    done = cli(SHORT_RUN, "--profile", "--out", "a")
    assert done.code == 0, done.err
    shown = done.out[done.out.index("profile of") :].splitlines()
    rows = [[float(word) for word in line.split()[1:]] for line in shown if re.match(r" +\d+ +\d", line)]
    assert len(rows) == 3
    for whole, *parts in rows:
        assert len(parts) == 6
        assert whole == pytest.approx(sum(parts), abs=5e-4)
    events = cli(SHORT_RUN, "--profile", "--json", "--out", "b").events
    [profile] = [event for event in events if event["event"] == "profile"]
    for one in profile["rounds"]:
        parts = ("training", "sums", "messages", "scoring", "disk", "rest")
        assert one["seconds"] == pytest.approx(sum(one[part] for part in parts))
    assert read_run(Path("a"))["hashes"] == read_run(Path("b"))["hashes"]


def test_a_comparison_lists_its_runs(cli: Cli, here: Path) -> None:
    words = "compare --method fedavg --method map --plan --out a"
    [event] = cli(words, "--json").events
    rows = [(row["method"], row["seed"], row["state"]) for row in event["rows"]]
    assert rows == [("fedavg", "0", "new"), ("map", "0", "new")]
    assert "4 runs, 0 finished; nothing was run (--plan)" in cli(words, "--seeds", 2).out
    assert not Path("a").exists()


def test_a_search_lists_its_trials_after_its_checks(cli: Cli, here: Path) -> None:
    words = "tune --method fedprox --rounds 4 --plan --out a"
    [event] = cli(words, "--grid", "mu=1e-2..1:log:3", "--json").events
    assert [row["setting"] for row in event["rows"]] == ["mu=0.01", "mu=0.1", "mu=1.0"]
    assert event["summary"] == "3 trials of 4 rounds, then 3 final runs"
    assert cli(words, "--grid", "mu=-2,-1").code == 2
    assert not Path("a").exists()
    Path("a").mkdir()
    Path("a/notes.txt").touch()
    taken = cli(words)
    assert (taken.code, "is not an empty folder; choose another --out" in taken.err) == (2, True)


def test_the_upload_of_an_own_method_is_attacked(cli: Cli, here: Path, lab: Path) -> None:
    victim = ("--model", "lenet_dlg", "--images", 1, "--iterations", 1, "--restarts", 1)
    done = cli("leakage", "--method", "./prox.py:myprox", "--set", "mu=0.5", *victim, "--json")
    assert (done.code, done.err) == (0, "")
    [event] = done.events
    assert (event["event"], event["method"]) == ("leakage", "./prox.py:myprox")
    assert event["mse"] >= 0
    assert "mse" in cli("leakage", "--method", "fedavg", *victim).out

"""`raffed run`, `compare` and `report` from the outside: streams, files, exit codes, `--seeds`, and
processes that read what another has written.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import raffed
from raffed.cli.tables import show_result
from raffed.methods import METHODS, build_method
from raffed.own import resolve
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from tests.cli.conftest import FEW, QUICK, Cli, shell
from tests.live_output import lines
from tests.own.conftest import lab
from tests.runtime.conftest import small
from tests.tiny import SHORT, digits

__all__ = ["lab"]


def test_json_is_all_there_is_on_stdout_and_agrees_with_the_folder(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = cli("run", "--method", "fedrs", "--rounds", 3, "--local-test", 0.2, "--json", *FEW, "--out", out)
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


def test_a_preset_is_an_argument_of_the_method(cli: Cli, tmp_path: Path) -> None:
    """`--preset authors` is `--set preset=authors`, which `compare` gives to each method that has it."""
    words = "run --method fedprox --set mu=0.5 --preset authors --rounds 1"
    assert cli(words, *FEW, "--out", tmp_path / "a").code == 0
    assert read_run(tmp_path / "a")["config"]["args"] == {"mu": 0.5, "preset": "authors"}


def test_compare_runs_every_method_and_reports(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "both"
    asked = ["compare --method fedrs --method fedavg --set alpha=1.0 --rounds 2", *FEW, "--out", out]
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
    words = "compare --method fedprox --method fedavg --set fedprox.mu=1e6 --rounds 2"
    asked = [words, *QUICK]
    done = cli(*asked, "--out", tmp_path / "both")
    assert (done.code, "FedProx: the training loss of client 0 in round 1 is nan" in done.err) == (1, True)
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
    assert cli("run --rounds 2 --quiet", *FEW, "--out", short).code == 0
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
    done = cli("run --rounds 1 --masks --clip-update 5 --json", *FEW, "--faults", plan, "--out", out)
    assert done.code == 0, done.err
    config = read_run(out)["config"]
    assert (config["faults"]["at"], config["privacy"]["clip"]) == ("drop 0@1", 5.0)
    assert config["privacy"]["masks"] is True
    [event] = [one for one in done.events if one["event"] == "round"]
    assert (event["participants"], event["straggling"]) == (3, 3)  # 4 clients, one dropped out
    plan.write_text('at = "drop 1@1, drop 3@3-200"\n')
    done = cli("run --rounds 2", *FEW, "--faults", plan, "--out", tmp_path / "a")
    assert (done.code, done.err) == (2, "raffed: faults.at names round 3; rounds are 1 to 2\n")


def test_report_needs_runs(cli: Cli, tmp_path: Path, finished: Path) -> None:
    nothing = cli("report", tmp_path, "--out", tmp_path / "report")
    assert (nothing.code, "no run to report on" in nothing.err) == (2, True)
    done = cli("report", finished, tmp_path / "gone", "--out", tmp_path / "report")
    assert (done.code, "gone" in done.err) == (0, True)
    assert str(tmp_path / "report" / "report.html") in done.out


def test_a_bug_keeps_its_traceback(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("raffed.runs.run.run_events", broken)
    from raffed.cli import main

    with pytest.raises(ZeroDivisionError):
        main(["run", "--json", *FEW, "--out", str(tmp_path / "run")])
    (event,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert event == {"event": "error", "kind": "ZeroDivisionError", "message": "a bug", "exit_code": 1}


def test_a_run_ends_with_its_best_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round 1 is made the best one. The clients' scores become 1 of 4 and 9 of 16, that is 10 of 20."""
    result, rows = raffed.run(digits("iid:2", local_test=0.3), out=tmp_path / "run"), []
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
    assert (done.code, f"{here}/watch.py:9: KeyError: 'no such thing'" in done.err) == (1, True)
    assert raffed.resume("a").state == "finished"


def test_seconds_of_a_round_add_up(cli: Cli, here: Path) -> None:
    done = cli(SHORT_RUN, "--profile", "--out", "a")
    assert done.code == 0, done.err
    shown = done.out[done.out.index("profile of") :].splitlines()
    rows = [[float(word) for word in line.split()[1:]] for line in shown if re.match(r" +\d+ +\d", line)]
    assert len(rows) == 3
    assert "what the driver waits for" in done.out
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


SMALL = ["--epochs", 1, "--split", "p4c5", "--samples", 200, "--model", "mlp", "--model-arg", "hidden=[4]"]
TWO = [*SMALL, "--rounds", 2]


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raffed.api.many_runs.in_processes", lambda runs: False)


@pytest.mark.more
def test_several_methods_have_intervals_and_paired_tests(cli: Cli, tmp_path: Path, in_turn: None) -> None:
    asked = ["compare --method fedavg --method fedprox --seed 4 --seeds 3 --json", *TWO]
    done = cli(*asked, "--out", tmp_path)
    assert done.code == 0
    names = sorted(one.parent.relative_to(tmp_path).as_posix() for one in tmp_path.glob("*/*/run.json"))
    assert names == [f"{method}/seed-{k}" for method in ("fedavg", "fedprox") for k in (4, 5, 6)]
    of_runs = [(event["method"], event["seed"]) for event in done.events if event["event"] == "finished"]
    assert of_runs == [(method, seed) for seed in (4, 5, 6) for method in ("fedavg", "fedprox")]
    report, differences = done.events[-2:]
    assert (report["event"], differences["event"]) == ("report", "differences")
    assert all((row["Seeds"], "±" in row["Aggregation, last %"]) == ("3", True) for row in report["runs"])
    (table,) = differences["tables"].values()
    assert [row["Seeds"] for row in table] == ["3"]


def test_the_same_command_keeps_seeds_and_adds_others(cli: Cli, tmp_path: Path, in_turn: None) -> None:
    out = tmp_path / "two"
    assert cli("run", *TWO, "--seeds", 1, "--out", out).code == 0
    before = (out / "seed-0" / "run.json").stat().st_mtime_ns
    more = cli("run", *TWO, "--seeds", 2, "--out", out)
    assert more.code == 0
    assert (out / "seed-0" / "run.json").stat().st_mtime_ns == before
    assert sorted(one.name for one in out.iterdir()) == ["report", "seed-0", "seed-1"]
    assert "±" not in more.out
    assert "two seeds are too few for an interval" in more.out
    other = cli("run", *TWO, "--lr", 0.5, "--seeds", 2, "--out", out)
    assert (other.code, "another configuration" in other.err) == (2, True)


def test_a_file_may_ask_for_seeds_as_the_option_does(cli: Cli, tmp_path: Path, in_turn: None) -> None:
    file = tmp_path / "run.toml"
    file.write_text('method = "fedavg"\nseeds = 2\n')
    assert cli("run", file, *TWO, "--seeds", 1, "--quiet", "--out", tmp_path / "one").code == 0
    assert [one.name for one in (tmp_path / "one").glob("seed-*")] == ["seed-0"]
    file.write_text('method = "fedavg"\nseeds = "many"\n')
    refused = cli("run", file, *TWO, "--out", tmp_path / "none")
    assert (refused.code, "seeds = 'many' must be a whole number" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --seeds 0", "seeds = 0 is outside"),
        ("run --seeds 2 --tensorboard board", "--tensorboard cannot be used with --seeds"),
    ],
)
def test_wrong_seeds_are_refused(cli: Cli, tmp_path: Path, finished: Path, words: str, said: str) -> None:
    done = cli(words, *TWO, "--out", tmp_path / "out")
    assert (done.code, said in done.err) == (2, True)
    assert not (tmp_path / "out").exists()
    in_its_folder = cli("run --seeds 2", *TWO, "--out", finished)
    assert (in_its_folder.code, "holds a single run" in in_its_folder.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_signal_stops_all_seeds_and_they_go_on_later(tmp_path: Path, number: int) -> None:
    """After a kill the processes of the runs notice that nobody listens to them any more."""
    out = tmp_path / "out"
    many = [*SMALL, "--rounds", 400, "--checkpoint-every", 2]
    command = [sys.executable, "-m", "raffed", "run", *many, "--seeds", "2", "--json", "--out", out]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for event in map(json.loads, lines(process)):
            if event["event"] == "round" and event["round"] == 4:
                os.kill(process.pid, number)
                break
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == (143 if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM:
        last = json.loads(rest.splitlines()[-1])
        assert (last["event"], last["resume"]) == ("stopped", f"the same command with --out {out}")
    begun = [one.parent for one in out.glob("seed-*/run.json")]
    until = time.monotonic() + 60
    while not begun or any(read_run(folder)["state"] != "stopped" for folder in begun):
        assert time.monotonic() < until, "a run goes on although its command was killed"
        time.sleep(0.1)
    done = shell("run", *many, "--seeds", 2, "--quiet", "--out", out)
    assert done.returncode == 0, done.stderr
    one = shell("run", *many, "--execution", "serial", "--seed", 1, "--quiet", "--out", tmp_path / "one")
    assert one.returncode == 0, one.stderr
    assert read_run(out / "seed-1")["state"] == "finished"
    assert read_run(out / "seed-1")["hashes"] == read_run(tmp_path / "one")["hashes"]


# Server, clients, or both keep records of classes in the method's own module
OWN_RECORDS = ("ccvr", "creff", "fedavgm", "feddbe", "scaffold", "scamap")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.more if n in OWN_RECORDS else pytest.mark.slow) for n in METHODS],
)
def test_a_process_of_its_own_reads_the_states_that_another_has_written(name: str, tmp_path: Path) -> None:
    """Stop a run after two of three rounds in this process, and go on with it in others."""
    method, run, begun = build_method(name), tmp_path / "run", []
    config = replace(small(name, 3, checkpoint_every=1), args=SHORT.get(name, {}))
    raffed.run(config, run, watch=begun.append, stop=lambda: len(begun) == 2)
    commands = [
        ["resume", run, "--quiet"],
        ["verify", run, "--rounds", 1],
        ["fork", run, "--at", 2, "--rounds", 4, "--out", tmp_path / "fork", "--quiet"],
    ]
    if method.has_global or method.personal is None or not method.personal.predicts:
        client = [] if method.has_global else ["--client", 1]
        commands.append(["export", run, "--out", tmp_path / "weights.pt", *client])
    if name == "scamap" or name not in OWN_RECORDS:  # those that read rows and no states
        commands += [
            ["bundle", run, "--out", tmp_path / "run.zip"],
            ["replay", tmp_path / "run.zip", "--out", tmp_path / "again", "--rounds", 1],
            ["report", run, "--out", tmp_path / "report"],
            ["runs", "list", tmp_path],
        ]
    for words in [*commands, ["extend", run, "--rounds", 4, "--quiet"]]:
        done = shell(*words)
        by_its_nature = words[0] == "extend" and "depend on the total number of rounds" in done.stderr
        assert done.returncode == 0 or by_its_nature, f"{words[0]}: {done.stderr}"

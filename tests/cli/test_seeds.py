"""`--seeds` of `raffed run` and `raffed compare`: folders, bits, going on, stopping, reporting."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cli.conftest import Cli, shell
from tests.live_output import lines

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
def test_impossible_seeds_are_refused(
    cli: Cli, tmp_path: Path, finished: Path, words: str, said: str
) -> None:
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

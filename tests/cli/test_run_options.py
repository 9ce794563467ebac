"""`--on-round`, `--profile`, `--plan`, and `raffed leakage`: what they add to a run, and no bit of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import raffed
from raffed.own import resolve
from raffed.results.runfile import read_run
from tests.cli.conftest import Cli
from tests.own.conftest import lab

__all__ = ["lab"]
SHORT_RUN = "run --split p4c3 --samples 200 --execution serial --rounds 3"
WATCH = """
seen = []

def note(event):
    seen.append(event.round)

def fails(event):
    if event.round == 2:
        raise KeyError('no such thing')
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("watch.py").write_text(WATCH)
    return tmp_path


def test_the_function_receives_each_round_and_changes_no_bit(cli: Cli) -> None:
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


def test_seconds_of_a_round_add_up(cli: Cli) -> None:
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


def test_a_comparison_lists_its_runs(cli: Cli) -> None:
    words = "compare --method fedavg --method map --plan --out a"
    [event] = cli(words, "--json").events
    rows = [(row["method"], row["seed"], row["state"]) for row in event["rows"]]
    assert rows == [("fedavg", "0", "new"), ("map", "0", "new")]
    assert "4 runs, 0 finished; nothing was run (--plan)" in cli(words, "--seeds", 2).out
    assert not Path("a").exists()


def test_a_search_lists_its_trials_after_its_checks(cli: Cli) -> None:
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


def test_the_upload_of_an_own_method_is_attacked(cli: Cli, lab: Path) -> None:
    victim = ("--model", "lenet_dlg", "--images", 1, "--iterations", 1, "--restarts", 1)
    done = cli("leakage", "--method", "./prox.py:myprox", "--set", "mu=0.5", *victim, "--json")
    assert (done.code, done.err) == (0, "")
    [event] = done.events
    assert (event["event"], event["method"]) == ("leakage", "./prox.py:myprox")
    assert event["mse"] >= 0
    assert "mse" in cli("leakage", "--method", "fedavg", *victim).out

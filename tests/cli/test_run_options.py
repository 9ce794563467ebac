"""`--on-round`, `--profile`, `--plan`, and `raffed leakage`: what they add to a run, and no bit of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import raffed
from raffed.api.running import callbacks
from raffed.errors import UsageError
from raffed.tables import estimates
from tests.cli.conftest import Cli, Outcome
from tests.own.conftest import lab

SHORT_RUN = "run --split p4c3 --samples 200 --execution serial --rounds 3"


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "watch.py"
    made.write_text(
        "seen = []\n\n\ndef note(event):\n    seen.append(event.round)\n\n\n"
        "def fails(event):\n    if event.round == 2:\n        raise KeyError('no such thing')\n"
    )
    return made


def test_the_function_receives_each_round_and_changes_no_bit(cli: Cli, watching: Path) -> None:
    assert cli(SHORT_RUN, "--on-round", "./watch.py:note", "--out", "a").code == 0
    assert cli(SHORT_RUN, "--out", "b").code == 0
    from raffed.own import resolve

    assert resolve.load("./watch.py:seen") == [1, 2, 3]
    one, other = (json.loads((watching.parent / name / "run.json").read_text()) for name in "ab")
    assert one["hashes"]["weights"] == other["hashes"]["weights"]
    assert one["identity"] == other["identity"]


def test_an_error_in_it_names_its_line_and_leaves_a_run_that_can_be_resumed(cli: Cli, watching: Path) -> None:
    done = cli(SHORT_RUN, "--on-round", "./watch.py:fails", "--out", "a")
    assert done.code == 1
    assert f"{watching}:10: KeyError: 'no such thing'" in done.err
    assert raffed.resume("a").state == "finished"


def test_what_is_no_function_is_refused_before_the_run_begins(cli: Cli, watching: Path) -> None:
    done = cli(SHORT_RUN, "--on-round", "./watch.py:seen", "--out", "a")
    assert (done.code, (watching.parent / "a").exists()) == (2, False)
    assert "it must be a function of a RoundEvent" in done.err
    with pytest.raises(UsageError, match="has no 'nosuch'"):
        callbacks(["./watch.py:nosuch"])


SMALL = ("--split", "p4c3", "--samples", "200", "--rounds", "3")
SERIAL = (*SMALL, "--execution", "serial")


def numbers(out: str) -> list[list[float]]:
    table = out[out.index("profile of") :].splitlines()
    return [[float(word) for word in line.split()[1:]] for line in table if re.match(r" +\d+ +\d", line)]


def hashes(folder: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(folder, "run.json").read_text())["hashes"]
    return found


def check_table(done: Outcome) -> None:
    assert done.code == 0, done.err
    found = numbers(done.out)
    assert len(found) == 3
    for whole, *parts in found:
        assert len(parts) == 6
        assert whole == pytest.approx(sum(parts), abs=5e-4)


def test_seconds_of_a_round_add_up(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_table(cli("run", *SERIAL, "--profile", "--out", "a"))
    plain = cli("run", *SERIAL, "--out", "b")
    assert "profile of" not in plain.out
    assert hashes("a") == hashes("b")
    assert {one.name for one in Path("a").iterdir()} == {one.name for one in Path("b").iterdir()}


def test_programs_get_an_event_a_method(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both = ("--method", "fedavg", "--method", "map")
    done = cli("compare", *both, *SERIAL, "--rounds", "2", "--profile", "--json", "--out", "c")
    events = [json.loads(line) for line in done.out.splitlines()]
    profiles = [event for event in events if event["event"] == "profile"]
    assert [one["method"] for one in profiles] == ["fedavg", "map"]
    for one in profiles:
        assert [found["round"] for found in one["rounds"]] == [1, 2]
        for found in one["rounds"]:
            parts = ("training", "sums", "messages", "scoring", "disk", "rest")
            assert found["seconds"] == pytest.approx(sum(found[part] for part in parts))


def test_a_comparison_lists_its_runs(cli: Cli, tmp_path: Path) -> None:
    words = ["compare --method fedavg --method map --plan", "--out", tmp_path / "a"]
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


def test_a_table_lists_cells_unprobed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


__all__ = ["lab"]
VICTIM = ("--model", "lenet_dlg", "--images", 1, "--iterations", 1, "--restarts", 1)


def test_the_upload_of_an_own_method_is_attacked(cli: Cli, lab: Path) -> None:
    done = cli("leakage", "--method", "./prox.py:myprox", "--set", "mu=0.5", *VICTIM, "--json")
    assert (done.code, done.err) == (0, "")
    [event] = done.events
    assert (event["event"], event["method"]) == ("leakage", "./prox.py:myprox")
    assert event["mse"] >= 0
    shown = cli("leakage", "--method", "fedavg", *VICTIM)
    assert shown.code == 0
    assert "mse" in shown.out

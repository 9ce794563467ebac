"""Sweeps on Ray: what they leave, what a failure costs, and that a kill changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.results.sweep_file import read_sweep
from raffed.results.writer import read_metrics, rows_sha256
from tests.cli.conftest import Cli
from tests.search.conftest import QUICK

pytestmark = pytest.mark.usefixtures("ray_here")


def test_every_setting_was_tried_and_the_best_by_validation_ran_again_with_two_seeds(swept: Path) -> None:
    """Trials that failed did not end the sweep."""
    methods = read_sweep(swept)["methods"]
    assert read_sweep(swept)["state"] == "finished"
    trials = {method: (one["budget"], len(one["trials"])) for method, one in methods.items()}
    assert trials == {"fedmr": (4, 4), "fedavg": (4, 2)}
    cost = methods["fedmr"]["cost"]
    assert (cost["trials"], cost["rounds"]) == (4, sum(one["rounds"] for one in methods["fedmr"]["trials"]))
    assert "Rounds to choose" in (swept / "tuning.md").read_text()
    for method, about in methods.items():
        finished = [trial for trial in about["trials"] if trial["state"] == "finished"]
        assert about["chosen"]["score"] == max(trial["score"] for trial in finished)
        assert [one["seed"] for one in about["final"]] == [1, 2]
        for one in about["final"]:
            run = read_run(swept / one["folder"])
            asked = run["config"]
            assert (run["state"], asked["method"], asked["seed"]) == ("finished", method, one["seed"])
            assert (asked["data"]["validation"], asked["local"]["lr"]) == (0.0, 0.05)


@pytest.mark.more
def test_a_sweep_that_the_cluster_refuses_leaves_no_folder(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: object) -> None:
        raise UsageError("a trial of 2 actors needs 1 GPUs, but there are only 0")

    monkeypatch.setattr("raffed.search.ray_tune.placement", refuse)
    ended = cli("tune --method fedavg", *QUICK, "--out", tmp_path / "a")
    assert ended.code == 2
    assert "needs 1 GPUs" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
def test_a_relative_path_of_the_data_leads_from_the_folder_of_the_command(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table.csv").write_text("a,y\n" + "".join(f"{row % 5},{row % 2}\n" for row in range(40)))
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    data = ("--dataset", "csv:table.csv?label=y", "--split", "iid:2", "--rounds", "1", "--at-once", "1")
    done = cli("tune --method fedavg --grid local.lr=0.1 --fill none --seeds 1 --out a", *data)
    assert done.code == 0, done.err
    about = read_sweep(tmp_path / "a")["methods"]["fedavg"]
    assert [one["state"] for one in [*about["trials"], *about["final"]]] == ["finished"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
def test_optuna_tries_each_setting_once_and_ends_if_there_are_fewer_than_trials(
    at_once: int, tmp_path: Path, cli: Cli
) -> None:
    pytest.importorskip("optuna")
    grid = "--grid local.batch_size=16,32 --fill none --search optuna --trials 4 --seeds 1"
    done = cli(f"tune --method fedavg {grid} --at-once {at_once}", *QUICK, "--out", tmp_path / "a")
    assert done.code == 0, done.err
    about = read_sweep(tmp_path / "a")["methods"]["fedavg"]
    assert {one["name"] for one in about["trials"]} == {"local.batch_size=16", "local.batch_size=32"}
    assert (len(about["trials"]), about["cost"]["trials"]) == (2, 2)


@pytest.mark.slow
def test_client_actors_inside_a_trial_give_the_serial_rows(swept: Path, tmp_path: Path, cli: Cli) -> None:
    words = (
        "tune --method fedmr --set mu2=0.1 --grid mu1=0.01 --grid local.lr=0.05 --seeds 1 --local-test 0.2"
    )
    done = cli(f"{words} --clip-norm 1e9 --actors 2", *QUICK, "--out", tmp_path / "b")
    assert done.code == 0
    name = "mu1=0.01,local.lr=0.05"
    actors, serial = (folder / "fedmr" / "trials" / name for folder in (tmp_path / "b", swept))
    assert read_run(actors)["placement"]["actors"] == 2
    assert rows_sha256(read_metrics(actors)) == rows_sha256(read_metrics(serial))


@pytest.mark.slow
def test_the_papers_protocol_chooses_by_test_accuracy_and_says_so(tmp_path: Path, cli: Cli) -> None:
    done = cli("tune", "--method", "fedrs", "--protocol", "paper", *QUICK, "--out", tmp_path / "a")
    assert done.code == 0
    assert "Optimistic" in done.out
    about = read_sweep(tmp_path / "a")
    best = about["methods"]["fedrs"]["chosen"]
    rows = read_metrics(tmp_path / "a" / "fedrs" / "trials" / best["name"]).to_pandas()
    kept = (rows["split"] == "test") & (rows["metric"] == "accuracy") & (rows["round"] == 2)
    last = rows[kept & rows["class"].isna()]
    assert best["score"] == last["value"].item()
    assert "final" not in about["methods"]["fedrs"]


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["--scheduler asha", "--search optuna"])
def test_a_killed_search_goes_on_and_repeats_no_ended_trial(learner: str, tmp_path: Path) -> None:
    """It is killed when the runs of three trials have ended; ASHA leaves some that are stopped."""
    if "optuna" in learner:
        pytest.importorskip("optuna")
    out, trials = tmp_path / "s", tmp_path / "s" / "fedmr" / "trials"
    asked = (
        f"{learner} --split p4c5 --rounds 6 --epochs 2 --checkpoint-every 2 --seeds 1 --trials 6 --at-once 1"
    )
    words = [sys.executable, "-m", "raffed", "tune", "--out", str(out)]
    started = subprocess.Popen(
        [*words, "--method", "fedmr", *asked.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if sum(_state(path) in ("finished", "stopped") for path in trials.glob("*")) >= 3:
            break
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    time.sleep(3)  # Ray's processes end when they notice
    files = {path / "run.json" for path in trials.glob("*") if _state(path) == "finished"}
    assert 1 <= len(files) <= 3
    written = {path: path.stat().st_mtime_ns for path in files}
    done = subprocess.run([*words, "--resume"], check=True, capture_output=True, text=True, timeout=600)
    assert {path: path.stat().st_mtime_ns for path in files} == written
    assert ("ASHA begins again" in done.stderr) == ("asha" in learner)
    about = read_sweep(out)["methods"]["fedmr"]
    assert [trial["number"] for trial in about["trials"]] == list(range(6))
    scores = [trial["score"] for trial in about["trials"] if trial["state"] == "finished"]
    assert about["chosen"]["score"] == max(scores)
    assert about["chosen"]["rounds"] == 6  # never of one that ASHA ended early


def _state(folder: Path) -> str:
    try:
        return str(read_run(folder).get("state"))
    except Exception:  # noqa: BLE001  # being written by another process
        return ""

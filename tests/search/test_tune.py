"""Sweeps on Ray: what they leave, what a failure costs, and that stopping them changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import read_run
from raffed.results.sweep_file import read_sweep
from raffed.results.writer import read_metrics, rows_sha256
from tests.cli.conftest import Cli
from tests.search.conftest import QUICK

pytestmark = pytest.mark.usefixtures("ray_here")


def test_every_setting_was_tried_and_failures_did_not_end_the_sweep(swept: Path) -> None:
    about = read_sweep(swept)
    assert about["state"] == "finished"
    trials = about["methods"]["fedmr"]["trials"]
    assert len(trials) == 4
    assert {trial["settings"]["local.lr"] for trial in trials if trial["state"] == "finished"} >= {0.05}
    assert about["methods"]["fedmr"]["chosen"]["settings"]["local.lr"] == 0.05
    assert about["methods"]["fedmr"]["budget"] == about["methods"]["fedavg"]["budget"] == 4
    assert len(about["methods"]["fedavg"]["trials"]) == 2
    cost = about["methods"]["fedmr"]["cost"]
    assert (cost["trials"], cost["rounds"]) == (4, sum(trial["rounds"] for trial in trials))
    assert "Rounds to choose" in (swept / "tuning.md").read_text()


def test_the_chosen_setting_is_the_best_on_validation_data_and_ran_again_with_two_seeds(swept: Path) -> None:
    for method, about in read_sweep(swept)["methods"].items():
        finished = [trial for trial in about["trials"] if trial["state"] == "finished"]
        assert about["chosen"]["score"] == max(trial["score"] for trial in finished)
        assert [one["seed"] for one in about["final"]] == [1, 2]
        for one in about["final"]:
            run = read_run(swept / one["folder"])
            asked = run["config"]
            assert (run["state"], asked["method"], asked["seed"]) == ("finished", method, one["seed"])
            assert asked["data"]["validation"] == 0.0
            assert asked["local"]["lr"] == 0.05


@pytest.mark.more
@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("runtime.ray.session.RaySession.wait", UsageError("--address 127.0.0.1:1: nothing answers there")),
        ("search.ray_tune.check_shared", RunFolderError("cannot be seen by 1 of 2 nodes")),
        ("search.ray_tune.placement", UsageError("a trial of 2 actors needs 1 GPUs, but there are only 0")),
    ],
)
def test_a_sweep_that_the_cluster_refuses_leaves_no_folder(
    place: str, error: Exception, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: object) -> None:
        raise error

    monkeypatch.setattr(f"raffed.{place}", refuse)
    ended = cli("tune --method fedavg", *QUICK, "--out", tmp_path / "a")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == f"raffed: {error}"
    assert list(tmp_path.iterdir()) == []


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
def test_asha_ends_bad_trials_early_and_still_chooses_a_finished_one(tmp_path: Path, cli: Cli) -> None:
    words = "tune --method fedprox --grid mu=0.01,1.0,300.0,1000.0 --scheduler asha --seeds 1 --at-once 1"
    done = cli(words, *QUICK, "--rounds", 9, "--out", tmp_path / "a")
    assert done.code == 0
    about = read_sweep(tmp_path / "a")["methods"]["fedprox"]
    assert min(trial["rounds"] for trial in about["trials"]) < 9
    assert about["chosen"]["rounds"] == 9


@pytest.mark.slow
def test_a_search_ends_with_the_warnings_of_its_trials(cli: Cli, tmp_path: Path) -> None:
    words = "tune --method scaffold --momentum 0 --weight-decay 0.01 --split p4c3 --samples 200 --rounds 1"
    done = cli(f"{words} --grid local.lr=0.05,0.1 --seeds 1 --at-once 1", "--out", tmp_path / "s")
    assert done.code == 0, done.err
    [line] = [line for line in done.err.splitlines() if "SCAFFOLD overrides local.weight_decay" in line]
    assert line.startswith("  ")
    assert "times)" in line


@pytest.mark.slow
def test_optuna_draws_from_ranges_and_the_report_shows_it_in_few_digits(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = "tune --method fedprox --split p4c5 --samples 200 --rounds 1 --at-once 1 --trials 3 --seeds 1"
    ranges = "--search optuna --grid mu=1e-4..1:log --grid local.lr=0.01..0.3:log"
    done = cli(f"{words} {ranges}", "--out", tmp_path / "s")
    assert done.code == 0, done.err
    assert "A new study" not in done.err
    about = read_sweep(tmp_path / "s")["methods"]["fedprox"]
    assert len({one["settings"]["mu"] for one in about["trials"]}) == 3
    assert all(1e-4 <= float(one["settings"]["mu"]) <= 1 for one in about["trials"])
    assert cli("report", tmp_path / "s", "--out", tmp_path / "report").code == 0
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert f"mu={float(str(about['chosen']['settings']['mu'])):.4g}" in page
    assert "score of each finished trial in the order of the search" in page


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


SEARCH = ["tune", "--method", "fedavg", "--grid", "local.lr=0.01,0.1", "--at-once", "1", "--seeds", "1"]
ENDLESS = [*SEARCH, *QUICK, "--rounds", "100000"]


def wait_for_a_trial(out: Path, over: Callable[[], bool]) -> None:
    """Return when the first trial of an endless search runs, or when it is over."""
    first, deadline = out / "fedavg" / "trials" / "local.lr=0.01", time.monotonic() + 120
    while _state(first) != "running" and time.monotonic() < deadline and not over():
        time.sleep(0.1)


def check_stopped(out: Path, err: str) -> None:
    assert f"stopped; continue with: raffed tune --resume --out {out}" in err
    about = read_sweep(out)
    assert about["state"] == "stopped"
    assert "chosen" not in about["methods"]["fedavg"]
    assert not (out / "fedavg" / "final").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_amid_a_search_stops_it(tmp_path: Path, number: int, code: int) -> None:
    out = tmp_path / "a"
    words = [sys.executable, "-m", "raffed", *ENDLESS, "--out", str(out)]
    started = subprocess.Popen(words, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_a_trial(out, lambda: started.poll() is not None)
    started.send_signal(number)
    _, err = started.communicate(timeout=120)
    assert started.returncode == code, err
    check_stopped(out, err)


def command(out: Path, *more: str) -> list[str]:
    words = "tune --method fedmr --dataset digits --split p4c5 --rounds 6 --epochs 2 --checkpoint-every 2"
    return [
        sys.executable,
        "-m",
        "raffed",
        *words.split(),
        "--seeds",
        "1",
        "--json",
        *more,
        "--out",
        str(out),
    ]


QUIET: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1"}


ENDED = ("finished", "stopped")  # the second: of a run that ASHA ended


def killed_after(count: int, words: list[str], trials: Path) -> set[str]:
    """Start a sweep, kill it when the runs of `count` trials have ended, and return the names of those
    that are finished.
    """
    started = subprocess.Popen(
        words, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 300
    while sum(_state(path) in ENDED for path in trials.glob("*")) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    time.sleep(3)  # Ray's processes end when they notice
    return {path.name for path in trials.glob("*") if _state(path) == "finished"}


def resume(out: Path) -> str:
    """Continue a sweep, and return what it said on its standard error."""
    again = [sys.executable, "-m", "raffed", "tune", "--resume", "--json", "--out", str(out)]
    done = subprocess.run(again, check=True, env=QUIET, capture_output=True, text=True, timeout=600)
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", ["--scheduler asha", "--search optuna", "--search optuna --scheduler asha"]
)
def test_a_killed_search_goes_on_and_repeats_no_ended_trial(learner: str, tmp_path: Path) -> None:
    if "optuna" in learner:
        pytest.importorskip("optuna")
    more = [*learner.split(), "--trials", "6", "--at-once", "1"]
    trials = tmp_path / "s" / "fedmr" / "trials"
    finished = killed_after(3, command(tmp_path / "s", *more), trials)
    assert 1 <= len(finished) <= 3
    assert len(list(trials.iterdir())) < 6
    written = {name: (trials / name / "run.json").stat().st_mtime_ns for name in finished}
    said = resume(tmp_path / "s")
    assert {name: (trials / name / "run.json").stat().st_mtime_ns for name in finished} == written
    assert ("ASHA begins again" in said) == ("asha" in learner)
    about = read_sweep(tmp_path / "s")["methods"]["fedmr"]
    assert [trial["number"] for trial in about["trials"]] == list(range(6))
    assert {trial["state"] for trial in about["trials"]} <= {"finished", "pruned"}
    scores = [trial["score"] for trial in about["trials"] if trial["state"] == "finished"]
    assert about["chosen"]["score"] == max(scores)
    assert about["chosen"]["rounds"] == 6  # never of one that ASHA ended early


@pytest.mark.slow
def test_a_grid_killed_half_way_resumes_to_the_same_choice_and_rows(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole"), check=True, env=QUIET, capture_output=True, timeout=600)
    trials = tmp_path / "killed" / "fedmr" / "trials"
    assert 4 <= len(killed_after(4, command(tmp_path / "killed"), trials)) < 9
    resume(tmp_path / "killed")
    whole, resumed = (read_sweep(tmp_path / name)["methods"]["fedmr"] for name in ("whole", "killed"))
    assert resumed["chosen"]["settings"] == whole["chosen"]["settings"]
    assert resumed["chosen"]["score"] == whole["chosen"]["score"]
    folders = sorted((tmp_path / "whole" / "fedmr" / "trials").iterdir())
    assert len(folders) == 9
    for folder in folders:
        assert rows_sha256(read_metrics(folder)) == rows_sha256(read_metrics(trials / folder.name))


def _state(folder: Path) -> str:
    try:
        return str(read_run(folder).get("state"))
    except Exception:  # noqa: BLE001  # being written by another process
        return ""

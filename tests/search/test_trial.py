"""Trials, without a search of Ray's: which run a folder holds at the end, and what a search learns from."""

from __future__ import annotations

import json
import logging
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from raffed.analysis.sweeps import Sweep, tuning_table
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from raffed import Local
from raffed.cli.messages import repeated_warnings
from raffed.cli.screen import make_screen
from raffed.config.search_axis import NumberRange
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import RUN_FILE, SWEEP_FILE, read_run, write_json
from raffed.results.sweep_file import read_sweep
from raffed.runs.folder import run_config
from raffed.search import trainable
from raffed.search.folder import SweepFolder, Trial, check_place, read_trial, trial_name
from raffed.search.ray_tune import Halving, optuna_search, outcome
from raffed.search.request import Request
from raffed.search.space import Axes
from raffed.search.trainable import (
    Report,
    TrialTask,
    at_rungs,
    federation,
    first_rung,
    known_trials,
    make_room,
    shown,
    warnings_in,
    with_warnings,
)
from tests.forging import FEWEST
from tests.tiny import digits

BASE = digits("p4c5", local=Local(epochs=1), validation=0.2)
PROX = Request(BASE, ("fedprox",), grid={})


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("ray.tune.report", found.append)
    return found


def repeat(folder: Path, lr: float, **runtime: Any) -> Path:
    """The final run with seed 1 of a choice, in the folder of a sweep."""
    final = folder / "fedavg" / "final"
    final.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).touch()
    base = replace(BASE, runtime=replace(BASE.runtime, **runtime))
    task = TrialTask(Request(base, ("fedavg",)), "fedavg", str(final), {"local.lr": lr})
    asked, place = task.run({"seed": 1})
    make_room(place, asked, final=True)  # as the sweep does before it begins its final runs
    federation({"seed": 1}, task)
    return final / "seed-1"


def test_a_final_run_of_an_earlier_choice_is_run_again_and_one_of_the_same_choice_is_kept(
    tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    kept = repeat(tmp_path / "a", 0.001)
    first, before = read_run(kept), len(reports)
    assert repeat(tmp_path / "a", 0.1) == kept
    told, written = reports[before:], (kept / "run.json").stat().st_mtime_ns
    repeat(tmp_path / "a", 0.1, max_restarts=3, checkpoint_every=1)
    assert (kept / "run.json").stat().st_mtime_ns == written
    assert reports[before:] == told * 2 != []
    second = read_run(kept)
    assert (run_config(kept).local.lr, second["state"]) == (0.1, "finished")
    assert second["run_id"] != first["run_id"]
    assert second["hashes"] == read_run(repeat(tmp_path / "b", 0.1))["hashes"] != first["hashes"]


def test_relative_paths_of_a_trial_lead_from_the_folder_of_the_command(
    tmp_path: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the data and of a reference that stands only in the grid, although Tune changes the folder."""
    home, elsewhere, out = (tmp_path / name for name in ("home", "elsewhere", "out"))
    for folder in (home, elsewhere, out):
        folder.mkdir()
    (out / SWEEP_FILE).touch()
    (home / "table.csv").write_text("a,y\n" + "".join(f"{row % 5},{row % 2}\n" for row in range(40)))
    (home / "mine.py").write_text("def half(done, total):\n    return 0.5\n")
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(home)
    data = {"data.dataset": "csv:table.csv?label=y", "data.split": "iid:2"}
    task = TrialTask(Request(BASE.changed(data), ("fedavg",)), "fedavg", str(out / "fedavg" / "trials"))
    monkeypatch.chdir(elsewhere)
    settings = {"local.schedule": "./mine.py:half"}
    federation({"trial": settings}, task)
    about = read_run(out / "fedavg" / "trials" / trial_name(settings))
    assert (about["state"], about["config"]["local"]["schedule"]) == ("finished", "./mine.py:half")
    monkeypatch.chdir(elsewhere)
    shutil.rmtree(home)  # as on another node, where nothing that this trial needs is missed
    federation({"trial": {}}, replace(task, request=PROX, method="fedprox"))
    assert read_run(out / "fedavg" / "trials" / "defaults")["state"] == "finished"


@pytest.mark.more
def test_a_trial_whose_process_died_has_failed_and_one_that_runs_has_not(swept: Path, tmp_path: Path) -> None:
    """A process that dies leaves a run.json that says it is running."""
    sweep = Path(shutil.copytree(swept, tmp_path / "a"))
    about = read_sweep(sweep)
    request = Request.from_dict(about["request"])
    known = [Trial.from_dict(one) for one in about["methods"]["fedmr"]["trials"]]
    (first, *others) = [one for one in known if one.state == "finished"]
    folder = sweep / "fedmr" / "trials" / first.name
    write_json(folder / RUN_FILE, read_run(folder) | {"state": "running"})
    running = replace(first, state="running")
    assert read_trial(request, folder, running).state == "running"
    assert read_trial(request, folder, replace(first, state="failed")).state == "failed"
    died = read_trial(request, folder, running, "The actor died")
    assert (died.state, died.error, died.ended) == ("failed", "The actor died", False)
    diverged = [one for one in known if one.state == "failed"]
    about["methods"] = {"fedmr": about["methods"]["fedmr"] | outcome([died, *others, *diverged])}
    table = tuning_table(Sweep(sweep, dict(about)))
    assert table.rows[0][table.titles.index("Failed")] == str(1 + len(diverged))
    for method in ("fedmr", "fedavg"):  # every trial failed before it wrote anything
        shutil.rmtree(sweep / method)
    about["methods"] = {"fedmr": outcome([died])}
    table = tuning_table(Sweep(sweep, dict(about)))
    assert table.rows[0][table.titles.index("Steps to choose")] == "–"


def test_a_pruned_trial_has_the_rounds_that_it_reported(tmp_path: Path) -> None:
    known = Trial("mu=0.5", {"mu": 0.5}, "pruned", number=4, reports=((1, 0.25), (3, 0.5)))
    (tmp_path / "metrics").mkdir()
    about = FEWEST | {"state": "stopped", "rounds_done": 0, "segments": []}
    (tmp_path / "run.json").write_text(json.dumps(about))
    found = read_trial(replace(PROX, scheduler="asha"), tmp_path, known)
    assert (found.state, found.rounds, found.reports) == ("pruned", 3, known.reports)


ROUNDS = 9
NOBODY: Any = None


def rounds_reported(scheduler: Halving, number: int) -> int:
    """One trial under a scheduler, alone: it is better or worse than others in an order that changes with the
    round.
    """
    trial: Any = SimpleNamespace(trial_id=f"t{number}")
    scheduler.on_trial_add(NOBODY, trial)
    for round in range(1, ROUNDS + 1):
        report = {"round": round, "score": abs(math.sin(7.0 * number + round))}
        if scheduler.on_trial_result(NOBODY, trial, report) == TrialScheduler.STOP:
            break
    scheduler.on_trial_complete(NOBODY, trial, report)
    return round


def test_asha_names_the_trials_that_it_ended_and_never_ends_one_in_its_last_round() -> None:
    scheduler = Halving(ROUNDS)
    made = [rounds_reported(scheduler, number) for number in range(12)]
    assert len(set(made)) > 2  # some end early, at different rungs
    assert {f"t{number}" for number, rounds in enumerate(made) if rounds < ROUNDS} == scheduler.ended


@pytest.mark.parametrize(
    ("rounds", "reported", "kept"),
    [
        (9, range(1, 6), [1, 3, 5]),  # and the last one
        (90, [5, 10, 15, 90], [10, 90]),  # rungs at 10, 30, 90; after 15 comes 90
        (3, [], []),
    ],
)
def test_reports_that_decided_a_rung_are_kept(rounds: int, reported: list[int], kept: list[int]) -> None:
    assert list(at_rungs(dict.fromkeys(reported, 0.5), rounds)) == kept
    assert first_rung(rounds) == max(1, rounds // 9)


AXES: Axes = {"a": [0.001, 1.0], "b": [0.0, 1.0], "c": [1, 2]}


def objective(settings: dict[str, Any]) -> float:
    return -((math.log10(settings["a"]) + 2) ** 2) - (settings["b"] - 0.3) ** 2 - 0.1 * settings["c"]


def carried_on(before: list[Trial], budget: int) -> list[Trial]:
    """The trials of a search, one at a time, of which some are there already."""
    trials = [trial for trial in before if trial.ended]
    search = optuna_search(AXES, 3, before)
    while len(trials) < budget:
        name = str(len(trials))
        config = search.suggest(name)
        assert config is not None
        settings = config["trial"]
        value = objective(settings)
        search.on_trial_complete(name, {"score": value})
        trials.append(Trial(trial_name(settings), settings, "finished", score=value, number=len(trials)))
    return trials


def test_optuna_goes_on_from_the_trials_before_and_begins_with_those_that_were_interrupted() -> None:
    pytest.importorskip("optuna")
    whole = carried_on([], 16)  # the first ten are drawn at random, the others from a model of the scores
    assert carried_on([], 16) == whole
    for cut in (1, 5, 13):
        interrupted = [replace(trial, state="running", score=math.nan) for trial in whole[cut : cut + 2]]
        resumed = carried_on([*whole[:cut], *interrupted], 20)
        before = [trial.settings for trial in whole[: cut + 2]]
        assert [trial.settings for trial in resumed[: cut + 2]] == before
        assert len({trial.name for trial in resumed}) == 20
    near = [objective(trial.settings) for trial in carried_on(whole, 30)[16:]]
    assert sum(near) / len(near) > sum(trial.score for trial in whole[:10]) / 10  # it learned from them


def test_optuna_knows_a_trial_that_diverged_or_was_pruned_and_refuses_one_outside_its_ranges() -> None:
    pytest.importorskip("optuna")
    first, second, third = carried_on([], 3)
    diverged = replace(first, state="failed", error="diverged; set clip_norm", score=math.nan)
    pruned = replace(second, state="pruned", score=math.nan, reports=((1, 0.5), (3, -1.0)))
    assert diverged.ended
    assert len(carried_on([diverged, pruned, third], 5)) == 5
    with pytest.raises(UsageError, match="a trial of the search has settings outside of its ranges"):
        optuna_search(AXES, 3, [Trial("x", {"a": 99.0, "b": 0.25, "c": 2}, "finished", score=0.5)])


def test_optuna_proposes_no_setting_twice_and_ends_where_none_is_left() -> None:
    """Of two batch sizes by three numbers of epochs there are six settings, also with one that still runs."""
    pytest.importorskip("optuna")
    few: Axes = {"local.batch_size": [8, 16], "local.epochs": NumberRange(1, 3, whole=True)}
    first = {"local.batch_size": 8, "local.epochs": 2}
    before = Trial(trial_name(first), first, "finished", score=0.5)
    search = optuna_search(few, 0, [before])
    names = {before.name}
    for number in range(5):
        config = search.suggest(str(number))
        assert isinstance(config, dict)
        names.add(trial_name(config["trial"]))
        if number:  # the first goes on running
            search.on_trial_complete(str(number), {"score": 0.25})
    assert names == {f"local.batch_size={size},local.epochs={n}" for size in (8, 16) for n in (1, 2, 3)}
    assert search.suggest("6") == Searcher.FINISHED


def test_another_major_version_of_optuna_does_not_resume_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(PROX, search="optuna")
    for begun_with, installed, refused in (("4.5.0", "4.9.1", False), ("4.9.1", "5.0.0", True)):
        monkeypatch.setattr("raffed.search.folder.version", lambda _, number=begun_with: number)
        SweepFolder(tmp_path / begun_with, request, resume=False)
        monkeypatch.setattr("raffed.search.folder.version", lambda _, number=installed: number)
        with (
            pytest.raises(RunFolderError, match=r"4\.9\.1.*5\.0\.0.*optuna==4\.\*")
            if refused
            else nullcontext()
        ):
            check_place(tmp_path / begun_with, request, resume=True)


def test_settings_are_found_in_their_folders_whatever_the_order_of_their_names(tmp_path: Path) -> None:
    """A JSON file has its keys in alphabetical order, the folder of a trial the order of the axes."""
    pytest.importorskip("optuna")
    settings = {"mu": 0.5, "local.lr": 0.25}
    request = replace(PROX, search="optuna")
    trial = Trial(trial_name(settings), settings, "running", number=0)
    SweepFolder(tmp_path / "a", request, resume=False).note("fedprox", {"trials": [trial.as_dict()]})
    resumed = SweepFolder(tmp_path / "a", request, resume=True)
    (found,) = known_trials(resumed, "fedprox", None, ["mu", "local.lr"])
    assert resumed.trial("fedprox", found.settings).name == "mu=0.5,local.lr=0.25"
    for axes in (["local.lr", "mu"], ["mu"], ["mu", "local.lr", "more"]):
        with pytest.raises(RunFolderError, match="trials, number 0: this is not a setting of this search"):
            known_trials(resumed, "fedprox", None, axes)


# Warnings of a trial's process reach the command, which counts each of them once

ROW = {"round": 2, "score": 0.5}


def test_a_trial_sends_its_warnings_with_its_next_report_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Report] = []
    monkeypatch.setattr(trainable.tune, "report", reports.append)

    def execute(config: Any, task: Any, warned: list[str]) -> None:
        for number in (1, 2, 3):
            if number < 3:
                logging.getLogger("raffed.runs.run").warning("round %d\n  of two lines", number)
            trainable.tune.report(with_warnings({"round": number}, warned))

    monkeypatch.setattr(trainable, "execute_trial", execute)
    trainable.federation({}, SimpleNamespace())  # type: ignore[arg-type]
    assert [warnings_in(one) for one in reports] == [("round 1 of two lines",), ("round 2 of two lines",), ()]


def test_the_board_counts_the_warnings_of_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with repeated_warnings(["tune"]):
        for name in "ab":
            trial = shown(name, {}, "running", with_warnings(ROW, ["odd setting"]))
            event = {"event": "trial", "method": "fedavg", **trial.as_dict()}
            make_screen(as_json=False).show(event, rounds=2, warnings=trial.warnings)
    assert capsys.readouterr().err.splitlines() == ["raffed: 2 warnings:", "  odd setting (2 times)"]

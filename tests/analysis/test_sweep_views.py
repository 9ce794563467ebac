"""What a report shows of sweeps: the table of a sweep, and trials beside final runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from raffed.analysis.__main__ import main
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary
from raffed.analysis.report import write_loaded
from raffed.analysis.sweeps import find_sweeps, trials_frame, trials_of, tuning_table

WriteRun = Callable[..., Path]


def write_sweep(folder: Path, protocol: str, about: dict[str, Any]) -> dict[str, Any]:
    """The sweep.json of a sweep over FedMR."""
    request = {"base": {}, "methods": ["fedmr"], "protocol": protocol, "select": "global"}
    whole = {"schema": 1, "request": request, "state": "finished", "meaning": "", "methods": {"fedmr": about}}
    (folder / "sweep.json").write_text(json.dumps(whole))
    return whole


def test_a_sweep_s_table_has_choice_budget_cost_and_the_final_runs_mean(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed, last in ((1, 0.6), (2, 0.8)):
        write_run(f"fedmr/final/seed-{seed}", [0.1, last], seed=seed, method="fedmr")
    trials = [
        {"name": "mu1=0.1", "settings": {"mu1": 0.1}, "state": "finished", "score": 0.5},
        {"name": "mu1=9.0", "settings": {"mu1": 9.0}, "state": "failed", "score": None},
    ]
    finals = [{"seed": seed, "folder": f"fedmr/final/seed-{seed}", "state": "finished"} for seed in (1, 2)]
    about = write_sweep(
        tmp_path,
        "validation",
        {
            "trials": trials,
            "chosen": trials[0],
            "budget": 2,
            "cost": {"trials": 2, "rounds": 7, "seconds": 1800},
            "final": finals,
        },
    )
    (sweep,) = find_sweeps([tmp_path])
    table = tuning_table(sweep)
    # Two seeds have no interval: t(1) = 12.706, s = 14.142 would give ± 127.06
    assert table.rows == [["fedmr", "mu1=0.1", "2/2", "1", "7", "0.500", "50.00", "2", "70.00", "–"]]
    assert trials_frame(about["methods"]["fedmr"]).to_dict("records") == [{"mu1": 0.1, "score": 0.5}]


def test_a_map_of_settings_has_their_means_over_the_seeds_as_the_choice_has() -> None:
    """mu = 0.1 has the best single seed, mu = 1.0 the best mean. A setting that failed once has no score."""
    scores = {(0.1, 0): 0.9, (0.1, 1): 0.3, (1.0, 0): 0.7, (1.0, 1): 0.8, (9.0, 0): 0.9, (9.0, 1): None}
    trials = [{"settings": {"mu": mu, "seed": seed}, "score": score} for (mu, seed), score in scores.items()]
    found = trials_frame({"trials": trials})
    assert list(found.columns) == ["mu", "score"]
    assert dict(zip(found["mu"], found["score"], strict=True)) == {
        0.1: pytest.approx(0.6),
        1.0: pytest.approx(0.75),
    }


def two_finals(folder: Path, write_run: WriteRun, digests: tuple[str, str]) -> None:
    """A sweep whose two final runs are of own code with these hashes."""
    for seed, digest in enumerate(digests):
        code = [{"role": "schedule", "reference": "./own.py:rate", "files": {"own.py": digest}}]
        write_run(f"fedmr/final/seed-{seed}", [0.6] * 8, seed=seed, method="fedmr", code=code)
    finals = [{"seed": seed, "folder": f"fedmr/final/seed-{seed}", "state": "finished"} for seed in (0, 1)]
    write_sweep(folder, "validation", {"trials": [], "chosen": None, "budget": 0, "final": finals})


def test_final_runs_of_other_code_than_each_other_are_not_called_seeds_without_a_remark(
    tmp_path: Path, write_run: WriteRun
) -> None:
    two_finals(tmp_path, write_run, ("a1" * 32, "b2" * 32))
    (sweep,) = find_sweeps([tmp_path])
    ((*_, told),) = tuning_table(sweep).rows
    assert (
        told == "not comparable: between its final runs its own code differs (own.py a1a1a1a1… / b2b2b2b2…)"
    )


def test_a_final_run_with_lacking_rows_is_not_among_the_seeds(tmp_path: Path, write_run: WriteRun) -> None:
    two_finals(tmp_path, write_run, ("a1" * 32, "a1" * 32))
    min((tmp_path / "fedmr" / "final" / "seed-1" / "metrics").iterdir()).unlink()
    (sweep,) = find_sweeps([tmp_path])
    table = tuning_table(sweep)
    assert table.rows[0][table.titles.index("Seeds")] == "1 of 2"


def test_a_final_run_that_diverged_or_is_not_finished_is_no_result_and_is_counted(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Three finished runs with a mean of 80 %; one that fell to 10 % and one in its first round are none."""
    finals = []
    for seed, (score, state) in enumerate(
        [(0.8, "finished"), (0.81, "finished"), (0.79, "finished"), (0.1, "failed"), (0.3, "running")], 1
    ):
        write_run(f"fedmr/final/seed-{seed}", [score], seed=seed, method="fedmr", state=state)
        finals.append({"seed": seed, "folder": f"fedmr/final/seed-{seed}", "state": state})
    chosen = {"name": "mu1=0.1", "settings": {"mu1": 0.1}, "state": "finished", "score": 0.5}
    write_sweep(tmp_path, "validation", {"trials": [chosen], "chosen": chosen, "final": finals})
    (sweep,) = find_sweeps([tmp_path])
    table = tuning_table(sweep)
    row = dict(zip(table.titles, table.rows[0], strict=True))
    assert (row["Seeds"], row["Aggregation %"]) == ("3 of 5", "80.00 ± 2.48")  # t(2) = 4.303 times 1/√3


def sweep_of(folder: Path, protocol: str) -> None:
    chosen = {"name": "mu1=0.1", "settings": {"mu1": 0.1}, "state": "finished", "score": 0.5}
    write_sweep(folder, protocol, {"trials": [chosen], "chosen": chosen})


def test_trials_are_no_results_beside_the_final_runs(tmp_path: Path, write_run: WriteRun) -> None:
    """The trial with the best test accuracy, 0.9, was not chosen; only the final run and a run outside
    the sweep count.
    """
    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr", args={"mu1": 0.1})
    write_run("sweep/fedmr/trials/mu1=9.0", [0.9], method="fedmr", args={"mu1": 9.0})
    write_run("alone", [0.4], seed=1)
    runs = {protocol: tmp_path / protocol for protocol in ("validation", "paper")}
    sweep_of(tmp_path / "sweep", "paper")
    page = write_loaded(
        load_runs([tmp_path], trials=True), runs["paper"], sweeps=find_sweeps([tmp_path])
    ).parent
    # The chosen trial is the result
    assert sorted(pd.read_csv(page / "summary.csv")["accuracy_last"]) == [
        0.4,
        0.5,
    ]
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr", args={"mu1": 0.1})
    sweep_of(tmp_path / "sweep", "validation")
    page = write_loaded(
        load_runs([tmp_path], trials=True), runs["validation"], sweeps=find_sweeps([tmp_path])
    ).parent
    assert sorted(pd.read_csv(page / "summary.csv")["accuracy_last"]) == [0.4, 0.7]


def test_in_python_trials_are_left_out_of_a_summary_unless_asked_for(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Beside final runs they would be ranked by test accuracy, which chose nothing."""
    write_run("sweep/fedmr/trials/mu1=9.0", [0.9], method="fedmr", args={"mu1": 9.0})
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr", args={"mu1": 0.1})
    sweep_of(tmp_path / "sweep", "validation")
    assert list(summary(load_runs(tmp_path))["accuracy_last"]) == [0.7]
    assert sorted(summary(load_runs(tmp_path, trials=True))["accuracy_last"]) == [0.7, 0.9]


def test_trials_are_shown_where_there_is_nothing_else(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr")
    sweep_of(tmp_path / "sweep", "validation")
    assert trials_of(load_runs([tmp_path]), find_sweeps([tmp_path])) == []
    assert list(load_runs([tmp_path]).files) == ["mu1=0.1"]


@pytest.mark.more
@pytest.mark.parametrize(("named", "said"), [(".", True), ("fedmr", True), ("fedmr/trials", False)])
def test_a_final_run_that_a_sweep_lists_and_that_is_not_there_is_named(
    named: str, said: bool, tmp_path: Path, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its folder nothing else of the run is there, and the report has fewer seeds without a word."""
    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr")
    for seed in (1, 2):
        write_run(f"sweep/fedmr/final/seed-{seed}", [0.7], seed=seed, method="fedmr")
    finals = [
        {"seed": seed, "folder": f"fedmr/final/seed-{seed}", "state": state}
        for seed, state in ((1, "finished"), (2, "finished"), (3, "failed"))
    ]
    chosen = {"name": "mu1=0.1", "settings": {"mu1": 0.1}, "state": "finished", "score": 0.5}
    write_sweep(tmp_path / "sweep", "validation", {"trials": [chosen], "chosen": chosen, "final": finals})
    missing = tmp_path / "sweep" / "fedmr" / "final" / "seed-2"
    shutil.rmtree(missing)
    assert main([str(tmp_path / "sweep" / named), "--out", str(tmp_path / "out")]) == 0
    told = f"left out {missing}: not there, although sweep.json says that this run is finished"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out")]
    assert lines == [told] * said
    assert (str(missing) in (tmp_path / "out" / "report.html").read_text()) is said


def test_with_the_papers_protocol_the_chosen_trial_is_missed(
    tmp_path: Path, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run("alone", [0.4])
    (tmp_path / "sweep" / "fedmr" / "trials" / "mu1=0.1").mkdir(parents=True)
    sweep_of(tmp_path / "sweep", "paper")
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "sweep/fedmr/trials/mu1=0.1: not there" in capsys.readouterr().err


@pytest.mark.parametrize("named", [["fedmr"], ["fedmr/trials", "fedmr/final"], ["."]])
def test_trials_are_known_wherever_in_the_sweep_a_report_begins(
    named: list[str], tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("sweep/fedmr/trials/mu1=9.0", [0.9], method="fedmr")
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr")
    sweep_of(tmp_path / "sweep", "validation")
    paths = [tmp_path / "sweep" / name for name in named]
    assert trials_of(load_runs(paths, trials=True), find_sweeps(paths)) == ["mu1=9.0"]
    assert list(load_runs(paths).files) == ["seed-1"]

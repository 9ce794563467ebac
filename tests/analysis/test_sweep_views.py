"""What a report shows of sweeps: the table of a sweep, and trials beside final runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from raffed.analysis.__main__ import main
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary
from raffed.analysis.report import write_loaded
from raffed.analysis.sweeps import find_sweeps, trials_frame, trials_of, tuning_table

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from tests.analysis.conftest import WriteRun
from tests.analysis.written_item import written_item

CHOSEN = {"name": "mu1=0.1", "settings": {"mu1": 0.1}, "state": "finished", "score": 0.5}


def write_sweep(folder: Path, protocol: str = "validation", **about: Any) -> dict[str, Any]:
    """The sweep.json of a sweep over FedMR."""
    request = {"base": {}, "methods": ["fedmr"], "protocol": protocol, "select": "global"}
    fedmr = {"trials": [CHOSEN], "chosen": CHOSEN, **about}
    whole = {"schema": 1, "request": request, "state": "finished", "meaning": "", "methods": {"fedmr": fedmr}}
    (folder / "sweep.json").write_text(json.dumps(whole))
    return fedmr


def finals(*states: str) -> list[dict[str, Any]]:
    """What sweep.json says of final runs, whose seeds begin at 1."""
    return [
        {"seed": seed, "folder": f"fedmr/final/seed-{seed}", "state": state}
        for seed, state in enumerate(states, 1)
    ]


def test_a_sweep_s_table_has_choice_budget_cost_and_the_final_runs_mean(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Two seeds have no interval: t(1) = 12.706, s = 14.142 would give ± 127.06."""
    for seed, last in ((1, 0.6), (2, 0.8)):
        write_run(f"fedmr/final/seed-{seed}", [0.1, last], seed=seed, method="fedmr")
    failed = {"name": "mu1=9.0", "settings": {"mu1": 9.0}, "state": "failed", "score": None}
    cost = {"trials": 2, "rounds": 7, "seconds": 1800}
    ends = finals("finished", "finished")
    about = write_sweep(tmp_path, trials=[CHOSEN, failed], budget=2, cost=cost, final=ends)
    (sweep,) = find_sweeps([tmp_path])
    assert tuning_table(sweep).rows == [
        ["fedmr", "mu1=0.1", "2/2", "1", "7", "0.500", "50.00", "2", "70.00", "–"]
    ]
    assert trials_frame(about).to_dict("records") == [{"mu1": 0.1, "score": 0.5}]


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


def test_final_runs_of_other_code_than_each_other_are_not_called_seeds_without_a_remark(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed, digest in ((1, "a1" * 32), (2, "b2" * 32)):
        code = [{"role": "schedule", "reference": "./own.py:rate", "files": {"own.py": digest}}]
        write_run(f"fedmr/final/seed-{seed}", [0.6], seed=seed, method="fedmr", code=code)
    write_sweep(tmp_path, final=finals("finished", "finished"))
    (sweep,) = find_sweeps([tmp_path])
    ((*_, told),) = tuning_table(sweep).rows
    other = "own.py a1a1a1a1… / b2b2b2b2…"
    assert told == f"not comparable: between its final runs its own code differs ({other})"


def test_a_final_run_that_diverged_lacks_rows_or_is_not_finished_is_no_result_and_is_counted(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Three whole runs have a mean of 80 %. t(2) is 4.303, times 1/√3."""
    states = ("finished", "finished", "finished", "failed", "running", "finished")
    for seed, (score, state) in enumerate(zip((0.8, 0.81, 0.79, 0.1, 0.3, 0.9), states, strict=True), 1):
        write_run(f"fedmr/final/seed-{seed}", [score] * 8, seed=seed, method="fedmr", state=state)
    min((tmp_path / "fedmr" / "final" / "seed-6" / "metrics").iterdir()).unlink()
    write_sweep(tmp_path, final=finals(*states))
    (sweep,) = find_sweeps([tmp_path])
    table = tuning_table(sweep)
    row = dict(zip(table.titles, table.rows[0], strict=True))
    assert (row["Seeds"], row["Aggregation %"]) == ("3 of 6", "80.00 ± 2.48")


def test_trials_are_no_results_beside_the_final_runs(tmp_path: Path, write_run: WriteRun) -> None:
    """The trial with the best test accuracy, 0.9, was not chosen; only the final run and a run outside
    the sweep count. With the papers' protocol the chosen trial is the result.
    """

    def shown(protocol: str) -> list[float]:
        write_sweep(tmp_path / "sweep", protocol)
        runs, sweeps = write_run.load(trials=True), find_sweeps([tmp_path])
        page = write_loaded(runs, tmp_path / protocol, sweeps=sweeps).parent
        return sorted(pd.read_csv(page / "summary.csv")["accuracy_last"])

    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr", args={"mu1": 0.1})
    write_run("sweep/fedmr/trials/mu1=9.0", [0.9], method="fedmr", args={"mu1": 9.0})
    write_run("alone", [0.4], seed=1)
    assert shown("paper") == [0.4, 0.5]
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr", args={"mu1": 0.1})
    assert shown("validation") == [0.4, 0.7]
    assert sorted(summary(write_run.load())["accuracy_last"]) == [0.4, 0.7]
    assert len(write_run.load(trials=True).files) == 4


@pytest.mark.parametrize(("named", "said"), [(".", True), ("fedmr/trials", False)])
def test_a_final_run_that_a_sweep_lists_and_that_is_not_there_is_named(
    named: str, said: bool, tmp_path: Path, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its folder nothing else of the run is there, and the report has fewer seeds without a word."""
    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr")
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr")
    write_sweep(tmp_path / "sweep", final=finals("finished", "finished", "failed"))
    missing = tmp_path / "sweep" / "fedmr" / "final" / "seed-2"
    assert main([str(tmp_path / "sweep" / named), "--out", str(tmp_path / "out")]) == 0
    told = f"left out {missing}: not there, although sweep.json says that this run is finished"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out")]
    assert lines == [told] * said
    assert (str(missing) in (tmp_path / "out" / "report.html").read_text()) is said


@pytest.mark.parametrize("named", [["fedmr"], ["fedmr/trials", "fedmr/final"], ["."]])
def test_trials_are_known_wherever_in_the_sweep_a_report_begins(
    named: list[str], tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("sweep/fedmr/trials/mu1=9.0", [0.9], method="fedmr")
    write_sweep(tmp_path / "sweep")
    paths = [tmp_path / "sweep" / name for name in named]
    assert list(load_runs(paths).files) == ["mu1=9.0"], "they are shown where there is nothing else"
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr")
    assert trials_of(load_runs(paths, trials=True), find_sweeps(paths)) == ["mu1=9.0"]
    assert list(load_runs(paths).files) == ["seed-1"]


CONFIG = RunConfig(
    data=Data(split="iid:2", samples=200),
    model=Model("mlp"),
    local=Local(epochs=1),
    federation=Federation(rounds=1),
    runtime=Runtime(execution="serial"),
)


def test_python_gives_the_rows_that_the_page_has(tmp_path: Path) -> None:
    """The copy has runs of the same names, which are then told apart by their paths."""
    one = tmp_path / "one"
    for name, rate in (("final", 0.1), ("trial", 0.2)):
        raffed.run(CONFIG.changed({"local.lr": rate}), out=one / "runs" / name)
    trials = [{"setting": "lr=0.2", "state": "finished", "score": 0.9, "run": "../runs/trial"}]
    rows = [{"row": "FedAvg", "column": "iid", "chosen": "lr=0.2", "trials": trials}]
    cell = {"row": "FedAvg", "column": "iid", "printed": {}, "runs": ["../runs/final"]}
    written_item(one / "item", [cell], search={"last": 10, "rows": rows})
    shutil.copytree(one, tmp_path / "two")
    for places in ([one], [one, tmp_path / "two"]):
        found = raffed.report(places, tmp_path / "report", progress=False)
        assert len(found.rows) == len(found.table) == 1
        lines = (tmp_path / "report" / "summary.md").read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line.startswith("| FedAvg")] == lines[2:3]
        assert lines[3:] == []

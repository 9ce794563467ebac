"""Whatever lies in the folders, also runs of one seed and sweeps: what can be read is reported, the rest is
named.
"""

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
from raffed.analysis.runs.comparable import notices
from raffed.analysis.runs.groups import Group, groups
from raffed.analysis.sweeps import find_sweeps, trials_frame, tuning_table

from tests.analysis.conftest import WriteRun


def test_runs_are_found_at_any_depth_and_lost_parts_are_told_by_their_rounds(write_run: WriteRun) -> None:
    folder = write_run("x/a", [0.5] * 12)
    parts = sorted((folder / "metrics").iterdir())
    for number in (0, 2):
        parts[number].unlink()
    (folder / "metrics" / ".part-000013-000013.parquet.tmp").write_bytes(b"half a file")
    runs = write_run.load()
    assert dict(runs.unreadable) == {
        str(folder / "metrics"): "no part has the rows of rounds 1-5, 11-12; put them back"
    }
    assert len(runs.runs) == 1
    write_run("y/a", [0.6])
    assert sorted(write_run.load().runs.index) == ["x/a", "y/a"], "names are as long as they must be"


def test_how_a_number_is_spelt_and_where_the_data_are_make_no_other_experiment(write_run: WriteRun) -> None:
    """Nor does a setting at none, or one that asks for nothing and that a run of an older version does
    not have.
    """
    old = (5, {"root": None, "local_test": None}, {"rounds": 9})
    new = (
        5.0,
        {"root": "/data", "download": True, "samples": 0},
        {"rounds": 9.0, "weighting": "", "survey": 0},
    )
    for seed, (epochs, data, federation) in enumerate((old, new)):
        data = {"dataset": "digits", "split": "p10c2", **data}
        config = {"method": "fedavg", "seed": seed, "data": data, "local": {"epochs": epochs}}
        write_run(f"s{seed}", [0.5], seed=seed, config={**config, "federation": federation})
    (group,) = groups(write_run.load())
    assert (group.label, group.used) == ("fedavg", ("s0", "s1"))


def test_a_label_names_the_settings_that_tell_groups_apart(write_run: WriteRun) -> None:
    """Tables go by labels. FedAvg's settings differ where labels do not look: in what the task is."""
    write_run("a", [0.5], method="fedprox", args={"mu": 0.1})
    write_run("b", [0.5], method="fedprox", args={"mu": 1.0})
    for name, split in (("c", "p10c2"), ("d", "P10C2")):
        config = {"method": "fedavg", "seed": 0, "data": {"dataset": "digits", "split": split}}
        write_run(name, [0.5], config=config)
    labels = {group.label for group in groups(write_run.load())}
    assert labels == {"fedprox mu=0.1", "fedprox mu=1", "fedavg", "fedavg (2)"}


def test_unfinished_runs_and_repeated_seeds_are_left_out_and_say_why(write_run: WriteRun) -> None:
    write_run("a", [0.5, 0.5], seed=0)
    write_run("again", [0.5, 0.5], seed=0)
    write_run("killed", [0.5], seed=1, state="running", planned=2)
    (group,) = groups(write_run.load())
    assert group.used == ("a",)
    assert dict(group.left_out) == {
        "again": "the same run again: a has the same seed, as many rounds and equal results",
        "killed": "running after 1 rounds, while others are finished",
    }
    assert group.state == "2 finished, 1 running"


def test_the_report_and_the_terminal_name_the_broken_runs_beside_the_good_ones(
    tmp_path: Path, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "lost", "torn", "folder"):
        write_run(f"runs/{name}", [0.5], seed=len(name))
    for name in ("lost", "folder"):
        (tmp_path / "runs" / name / "run.json").unlink()
    (tmp_path / "runs" / "torn" / "run.json").write_text("{")
    (tmp_path / "runs" / "folder" / "run.json").mkdir()
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    told, page = capsys.readouterr().err, (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    for name in ("lost", "torn", "folder"):
        assert f"left out {tmp_path / 'runs' / name}: " in told
        assert str(tmp_path / "runs" / name) in page
    assert "run.json is a folder, but must be a file" in told


ROUNDS = 8  # written in the parts 1-5 and 6-8
OTHER = {"weights": "11" * 32, "metrics": "22" * 32}


def only(folder: Path) -> Group:
    (group,) = groups(load_runs(folder))
    return group


def truncated(run: Path) -> None:
    part = max((run / "metrics").iterdir())
    part.write_bytes(part.read_bytes()[:100])


def without_first_part(run: Path) -> None:
    min((run / "metrics").iterdir()).unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncated, "part-000006-000008.parquet: "),
        (without_first_part, "metrics: no part has the rows of rounds 1-5; put them back"),
    ],
)
def test_a_damaged_run_never_stands_for_a_whole_one_and_is_in_no_mean(
    tmp_path: Path, write_run: WriteRun, damage: Callable[[Path], None], said: str
) -> None:
    """The copy comes first by its name, and its run.json has as many rounds, or more."""
    for name, rounds, seed in (("a-copy", ROUNDS, 0), ("whole", ROUNDS - 2, 0), ("z", ROUNDS, 1)):
        write_run(name, [0.1 * len(name)] * rounds, planned=ROUNDS, seed=seed)
    for name in ("a-copy", "z"):
        damage(tmp_path / name)
    group = only(tmp_path)
    assert group.used == ("whole",)
    why = dict(group.left_out)
    assert why["a-copy"].startswith(f"its rows are not as the run wrote them ({said}")
    assert why["a-copy"].endswith("and whole has the same seed")
    assert why["z"].endswith("and others are finished and whole")
    assert summary(write_run.load())["accuracy_last"].tolist() == [0.5]


def test_a_whole_stopped_run_goes_before_a_damaged_finished_one(tmp_path: Path, write_run: WriteRun) -> None:
    without_first_part(write_run("finished", [0.5] * ROUNDS))
    write_run("stopped", [0.5] * 3, state="stopped", planned=ROUNDS)
    assert only(tmp_path).used == ("stopped",)


def test_unequal_results_of_one_seed_are_told_with_the_other_run(write_run: WriteRun) -> None:
    write_run("a", [0.5])
    write_run("b", [0.6], hashes=OTHER)
    runs = write_run.load()
    (group,) = groups(runs)
    assert (group.used, group.contradicted_by) == (("a",), ("b",))
    ((_, why),) = group.left_out
    assert "the results differ: a has as many rounds, but other hashes of weights and metric rows" in why
    ((_, remark),) = notices(runs, [group])
    assert remark.startswith("another run of the same seed has other results (b)")
    assert summary(runs)["comparable"].tolist() == [f"yes; {remark}"]


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


def test_a_sweep_s_table_has_choice_budget_cost_and_mean(tmp_path: Path, write_run: WriteRun) -> None:
    """Two seeds have no interval: t(1) = 12.706, s = 14.142 would give ± 127.06. Trials of 4 and 3 rounds, of
    2.5 and 10 steps a round, are 4·2.5 + 3·10 = 40 steps.
    """
    for name, rounds, steps in (("mu1=0.1", 4, 2.5), ("mu1=9.0", 3, 10)):
        write_run(f"fedmr/trials/{name}", [0.1] * rounds, method="fedmr", effective={"steps": steps})
    for seed, last in ((1, 0.6), (2, 0.8)):
        write_run(f"fedmr/final/seed-{seed}", [0.1, last], seed=seed, method="fedmr")
    failed = {"name": "mu1=9.0", "settings": {"mu1": 9.0}, "state": "failed", "score": None}
    cost = {"trials": 2, "rounds": 7, "seconds": 1800}
    ends = finals("finished", "finished")
    about = write_sweep(tmp_path, trials=[CHOSEN, failed], budget=2, cost=cost, final=ends)
    (sweep,) = find_sweeps([tmp_path])
    assert tuning_table(sweep).rows == [
        ["fedmr", "mu1=0.1", "2/2", "1", "7", "40", "0.500", "50.00", "2", "70.00", "–"]
    ]
    assert trials_frame(about).to_dict("records") == [{"mu1": 0.1, "score": 0.5}]
    scored = [(0.1, 0.3), (0.1, 0.2), (0.1, 0.1), (9.0, 0.1), (9.0, 0.2), (9.0, 0.3)]
    tied = [{"settings": {"mu1": mu1, "seed": at}, "score": score} for at, (mu1, score) in enumerate(scored)]
    assert trials_frame({"trials": tied})["score"].nunique() == 1, "in whatever order the scores come"
    shutil.rmtree(tmp_path / "fedmr" / "trials" / "mu1=9.0")
    assert tuning_table(sweep).rows[0][5] == "–", "the steps of a trial that is not there are not known"


def test_a_final_run_that_is_not_whole_is_counted_and_no_result(tmp_path: Path, write_run: WriteRun) -> None:
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


def test_a_final_run_that_a_sweep_lists_and_that_is_not_there_is_named(
    tmp_path: Path, write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its folder nothing else of the run is there, and the report has fewer seeds without a word."""
    write_run("sweep/fedmr/trials/mu1=0.1", [0.5], method="fedmr")
    write_run("sweep/fedmr/final/seed-1", [0.7], seed=1, method="fedmr")
    write_sweep(tmp_path / "sweep", final=finals("finished", "finished", "failed"))
    missing = tmp_path / "sweep" / "fedmr" / "final" / "seed-2"
    assert main([str(tmp_path / "sweep"), "--out", str(tmp_path / "out")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out")]
    assert lines == [f"left out {missing}: not there, although sweep.json says that this run is finished"]
    assert str(missing) in (tmp_path / "out" / "report.html").read_text()

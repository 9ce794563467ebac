"""Whatever lies in the folders, also runs of one seed and sweeps: what can be read is reported, the rest is
named.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from raffed.analysis.__main__ import main
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary
from raffed.analysis.report import write_loaded
from raffed.analysis.runs.comparable import notices
from raffed.analysis.runs.groups import Group, groups
from raffed.analysis.sweeps import find_sweeps, trials_frame, tuning_table

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.results.files import file_sha256
from tests.analysis.changed_run import change
from tests.analysis.conftest import WriteRun
from tests.analysis.written_item import written_item
from tests.forging import sha256


def test_runs_are_found_at_any_depth_and_once(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("x/a", [0.5])
    write_run("b", [], method="fedmr", state="running", planned=5)
    runs = load_runs([tmp_path, tmp_path / "b", str(tmp_path / "x")])
    assert sorted(runs.runs.index) == ["a", "b"]
    assert dict(runs.unreadable) == {}
    row = runs.runs.loc["b"]
    assert (row["method"], row["partition"], row["rounds_done"]) == ("fedmr", "p10c2", 0)
    write_run("y/a", [0.6])
    assert sorted(load_runs(str(tmp_path)).runs.index) == ["b", "x/a", "y/a"]


@pytest.mark.parametrize(("lost", "told"), [([2], "6-10"), ([1, 3], "1-5, 11-12"), ([1, 2, 3], "1-12")])
def test_lost_parts_are_told_by_their_rounds(write_run: WriteRun, lost: list[int], told: str) -> None:
    folder = write_run("a", [0.5] * 12)
    parts = sorted((folder / "metrics").iterdir())
    for number in lost:
        parts[number - 1].unlink()
    (folder / "metrics" / ".part-000013-000013.parquet.tmp").write_bytes(b"half a file")
    runs = write_run.load()
    assert dict(runs.unreadable) == {
        str(folder / "metrics"): f"no part has the rows of rounds {told}; put them back"
    }
    assert len(runs.runs) == 1


def test_a_part_of_a_later_schema_is_named_with_its_number(tmp_path: Path, write_run: WriteRun) -> None:
    (part,) = (write_run("a", [0.5]) / "metrics").iterdir()
    pq.write_table(pq.ParquetFile(part).read().replace_schema_metadata({b"raffed.schema": b"99"}), part)
    change(tmp_path / "a", "files", {f"metrics/{part.name}": sha256(part)})
    assert "schema 99" in write_run.load().unreadable[str(part)]


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


def test_forks_of_several_seeds_are_one_experiment_if_their_runs_were(write_run: WriteRun) -> None:
    """Each has the hash of its own checkpoint. s2 is a fork of a run with another rate."""
    for seed, rate in enumerate((0.1, 0.1, 0.2)):
        config = {
            "method": "fedavg",
            "data": {"dataset": "digits", "split": "p10c2"},
            "local": {"lr": 0.5},
            "federation": {"rounds": 9, "forked_at": 4, "fork_sha256": f"{seed}" * 64},
        }
        source = {**config, "seed": seed, "local": {"lr": rate}, "federation": {"rounds": 5}}
        earlier = [{"until": 4, "config": source}]
        write_run(f"s{seed}", [0.5], seed=seed, config={**config, "seed": seed}, earlier=earlier)
    found = sorted(groups(write_run.load()), key=lambda group: group.used)
    assert [group.used for group in found] == [("s0", "s1"), ("s2",)]
    assert all(re.fullmatch("fedavg forked_from=[0-9a-f]{8}", group.label) for group in found)


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


def exchanged_part(run: Path) -> None:
    """The hash in run.json is that of other rows."""
    files = {f"metrics/{path.name}": file_sha256(path) for path in (run / "metrics").iterdir()}
    change(run, "files", {**files, max(files): "0" * 64})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncated, "part-000006-000008.parquet: "),
        (without_first_part, "metrics: no part has the rows of rounds 1-5; put them back"),
        (
            exchanged_part,
            "part-000006-000008.parquet: it was changed, run.json has another hash; put back a copy",
        ),
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


def test_an_edited_run_json_costs_that_run_only_and_is_named(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a-copy", [0.5] * ROUNDS)
    write_run("whole", [0.5] * ROUNDS)
    change(tmp_path / "a-copy", "config.local.lr", 0.05)  # seals the file
    path = tmp_path / "a-copy" / "run.json"
    text = path.read_text()
    assert "12.3" in text
    path.write_text(text.replace("12.3", "99.9"))
    runs = write_run.load()
    assert [group.used for group in groups(runs)] == [("whole",)]
    assert "was edited or damaged" in runs.unreadable[str(tmp_path / "a-copy")]


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


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "the same run again: a has the same seed, as many rounds and equal results"),
        ({"state": "stopped", "planned": 9, "hashes": {}}, "seed 0 is there already: a has as many rounds"),
    ],
)
def test_a_copy_is_the_same_run_again_if_its_hashes_say_so(
    tmp_path: Path, write_run: WriteRun, about: dict[str, object], why: str
) -> None:
    for name in ("a", "b"):
        write_run(name, [0.5], **about)
    runs = write_run.load()
    assert only(tmp_path).left_out == (("b", why),)
    assert notices(runs, groups(runs)) == []


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
    shutil.rmtree(tmp_path / "fedmr" / "trials" / "mu1=9.0")
    assert tuning_table(sweep).rows[0][5] == "–", "the steps of a trial that is not there are not known"


def test_settings_as_good_as_the_chosen_one_are_named_beside_it(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("fedmr/final/seed-1", [0.6], seed=1, method="fedmr")
    scores = {1.0: 0.5, 9.0: 0.4}
    others = [{**CHOSEN, "settings": {"mu1": mu}, "score": score} for mu, score in scores.items()]
    write_sweep(tmp_path, trials=[CHOSEN, *others], final=finals("finished"))
    (sweep,) = find_sweeps([tmp_path])
    assert tuning_table(sweep).rows[0][1] == "mu1=0.1 (as good: mu1=1.0)"


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


def test_final_runs_of_other_code_are_remarked_on(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, digest in ((1, "a1" * 32), (2, "b2" * 32)):
        code = [{"role": "schedule", "reference": "./own.py:rate", "files": {"own.py": digest}}]
        write_run(f"fedmr/final/seed-{seed}", [0.6], seed=seed, method="fedmr", code=code)
    write_sweep(tmp_path, final=finals("finished", "finished"))
    (sweep,) = find_sweeps([tmp_path])
    ((*_, told),) = tuning_table(sweep).rows
    other = "own.py a1a1a1a1… / b2b2b2b2…"
    assert told == f"not comparable: between its final runs its own code differs ({other})"


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

"""Runs are compared only where all but the method is equal, also own code; what differs is named wherever
they stand side by side.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.figures.curves import class_accuracy, task_curves, tasks
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.compare import comparison_table, ranking
from raffed.analysis.metrics.summary import summary, to_html
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.runs.comparable import MARK, apart, comparability, differences, notices
from raffed.analysis.runs.conditions import ALIKE
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.load import Runs
from raffed.analysis.sections import task_sections
from raffed.analysis.sweeps import Sweep, tuning_table
from raffed.analysis.table import as_markdown
from raffed.reproductions.pages.pack_records import main as pack

from raffed.config.run import RunConfig
from raffed.data.preparation import TRANSFORMS
from tests.analysis.conftest import ONE, OTHER, WriteRun, change


def pair(
    write_run: WriteRun, where: str = "", value: object = None, seeds: int = 3, other_split: str = "p10c2"
) -> None:
    """fedavg and fedprox, three seeds; in fedprox's runs one thing is another."""
    for method, best, split in (("fedavg", 0.5, "p10c2"), ("fedprox", 0.7, other_split)):
        for seed in range(seeds):
            config = copy.deepcopy(RunConfig(method=method, seed=seed).as_dict())
            config["data"]["split"] = split
            scores = [best, best + 0.01 * seed]
            folder = write_run(
                f"{method}{seed}",
                scores,
                personal=scores,
                method=method,
                seed=seed,
                split=split,
                config=config,
                partition_sha256=ONE,
            )
            change(folder, "config.federation.rounds", 2)
            if where and method == "fedprox":
                change(folder, where, value)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("partition_sha256", OTHER, "the partition differs (c3d4e5f6… / a1b2c3d4…)"),
        ("config.model.args", {"hidden": [64]}, "model.args.hidden differs ([64] / none)"),
        ("data_sha256", "ab" * 32, f"data_sha256 differs ({'ab' * 32} / none)"),
        ("config.federation.rounds", 9, "federation.rounds differs (9 / 2)"),
    ],
)
def test_what_differs_is_named_and_not_tested(
    write_run: WriteRun, where: str, value: object, said: str
) -> None:
    pair(write_run, where, value)
    runs = write_run.load()
    assert any(f"not comparable: {said}" in cell for cell in summary(runs)["comparable"])
    assert comparison_table(runs, groups(runs)) is None


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("", None),
        ("config.args", {"mu": 0.5}),
        ("config.federation.survey", 2),
        ("config.data.root", "/elsewhere"),
    ],
)
def test_runs_may_differ_in_what_trains_nothing(write_run: WriteRun, where: str, value: object) -> None:
    pair(write_run, where, value)
    runs = write_run.load()
    members = groups(runs)
    assert all(not one.against for one in comparability(runs, members).values())
    table = comparison_table(runs, members)
    assert table.rows[0][:2] == ["fedavg", "3"]
    if not where:
        assert notices(runs, members) == []
        assert "comparable" not in summary(runs)


def test_one_partition_under_two_names_is_one_task_and_is_compared(write_run: WriteRun) -> None:
    pair(write_run, seeds=2, other_split="file:a/my.npz")
    runs = write_run.load()
    assert list(tasks(runs)) == [("digits", "p10c2 = file:a/my.npz")]
    table = comparison_table(runs, groups(runs))
    assert len(table.rows) == 1
    assert any(
        "the partition has two names (" in cell and "is the same" in cell
        for cell in summary(runs)["comparable"]
    )


@pytest.mark.parametrize("split", ["p10c2", "file:my.npz"])
def test_a_partition_of_one_name_with_two_hashes_is_two_experiments(write_run: WriteRun, split: str) -> None:
    drawn = (("a0", 0, ONE), ("a1", 1, "e" * 64), ("b0", 0, OTHER))
    stored = (("a0", 0, ONE), ("a1", 1, ONE), ("b0", 0, OTHER))
    for name, seed, digest in drawn if split == "p10c2" else stored:
        write_run(name, [0.5], seed=seed, split=split, partition_sha256=digest)
    assert sorted(group.used for group in groups(write_run.load())) == [("a0", "a1"), ("b0",)]


def three(write_run: WriteRun) -> Runs:
    """fedavg and fedprox may be compared, map (0.9) is of another partition, on two tasks."""
    for split in ("p10c2", "iid:10"):
        for method, score, digest in (("fedavg", 0.5, ONE), ("fedprox", 0.6, ONE), ("map", 0.9, OTHER)):
            for seed in range(2):
                name = f"{split[0]}-{method}{seed}"
                write_run(
                    name,
                    [score - 0.1, score],
                    personal=[score, score],
                    method=method,
                    seed=seed,
                    split=split,
                    partition_sha256=digest,
                )
    return write_run.load()


def test_every_view_keeps_or_marks_what_may_not_be_compared(write_run: WriteRun) -> None:
    runs = three(write_run)
    members = tasks(runs)["digits", "p10c2"]
    table = comparison_table(runs, members)
    assert [line[0] for line in table.rows] == ["fedavg", "map"]
    assert table.rows[1][1:6] == ["–"] * 5
    assert table.rows[1][6].startswith("not comparable: the partition differs")
    targets = target_table(runs, members)
    assert next(line for line in targets.rows if line[0] == "map")[1:] == ["–", "not comparable", "–"]
    marked = {f"map{MARK}", "fedavg", "fedprox"}
    assert {curve.label for curve in task_curves(runs, ("digits", "p10c2"), "Aggregation accuracy")} == marked
    assert set(class_accuracy(runs, ("digits", "p10c2")).index) == marked
    assert ranking(runs) is None, "two methods are left, and a ranking is of three"
    best = to_html(summary(runs), best=["Aggregation, last %"])
    assert "<strong>60.00" in best
    assert "<strong>90.00" not in best
    assert f"<td>map{MARK}</td>" in best
    assert apart(runs, members) == "≠ marks 1 of 3 rows: it may not be compared with the other 2."
    assert "Last aggregation against last personalization accuracy" in task_sections(runs, members)


def test_a_rate_that_a_sweep_chose_belongs_to_the_method(tmp_path: Path, write_run: WriteRun) -> None:
    about: dict[str, Any] = {
        "request": {"protocol": "validation", "select": "global", "grid": {"local.lr": [0.1, 0.5]}},
        "methods": {},
    }
    for method, rate in (("fedavg", 0.1), ("map", 0.512345678)):
        for seed in (1, 2):
            folder = write_run(
                f"{method}/final/seed-{seed}", [0.5], method=method, seed=seed, partition_sha256=ONE
            )
            change(folder, "config.local.lr", rate)
        final = [{"folder": f"{method}/final/seed-{seed}", "state": "finished"} for seed in (1, 2)]
        about["methods"][method] = {
            "trials": [],
            "budget": 0,
            "cost": {},
            "chosen": {"settings": {"local.lr": rate}},
            "final": final,
        }
    (tmp_path / "sweep.json").write_text(json.dumps(about))
    runs = write_run.load()
    assert differences(runs, *groups(runs)) == []
    (told,) = (cell for cell in summary(runs)["comparable"] if cell != "yes")
    assert "local.lr differs (0.5123 / 0.1): it was chosen for each method by the sweep" in told
    assert "Comparable" not in tuning_table(Sweep(tmp_path, about), runs).titles
    change(tmp_path / "map/final/seed-1", "partition_sha256", OTHER)
    table = tuning_table(Sweep(tmp_path, about), write_run.load())
    assert "the partition differs (c3d4e5f6… / a1b2c3d4…, in 1 of 2 seeds)" in as_markdown(table)


def test_equal_styles_of_preprocessing_are_those_of_raffed() -> None:
    """`p10c2` and `file:` of one partition have other styles, and where these are one transform the runs
    may be compared.
    """
    for dataset, transforms in TRANSFORMS.items():
        styles: dict[Any, list[str]] = {}
        for style, transform in transforms.items():
            styles.setdefault(transform, []).append(style)
        known = [set(one) for one in styles.values() if len(one) > 1]
        said = [set(one.split()) for one in ALIKE.get(dataset, ())]
        assert sorted(map(sorted, said)) == sorted(map(sorted, known)), dataset


def test_runs_that_one_rule_ended_after_other_numbers_of_rounds_may_be_compared(write_run: WriteRun) -> None:
    for method, rounds in (("fedavg", 2), ("fedprox", 3)):
        folder = write_run(method, [0.5] * rounds, method=method, planned=9, partition_sha256=ONE)
        change(folder, "config.federation.stop_when", "val.accuracy no better for 1 rounds")
        if method == "fedavg":
            change(folder, "ended_early", "no better for 1 rounds")
    one = write_run.load()
    assert [str(found) for found in differences(one, *groups(one))] == [
        "the number of rounds done differs (9 / 3)"
    ]
    assert differences(one, *groups(one), frozenset({"federation.rounds"})) == []  # an item may say so
    change(folder, "ended_early", "no better for 1 rounds")
    both = write_run.load()
    assert differences(both, *groups(both)) == []


A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
OWN = "./own.py:own"


def record(**files: str) -> dict[str, Any]:
    return {"role": "method", "reference": OWN, "package": "", "files": files}


def used(folder: Path) -> dict[str, tuple[str, ...]]:
    return {group.label: group.used for group in groups(load_runs(folder))}


def remarks(folder: Path) -> list[tuple[str, str]]:
    runs = load_runs(folder)
    return list(notices(runs, groups(runs)))


def test_seeds_of_other_code_are_a_row_of_their_own(tmp_path: Path, write_run: WriteRun) -> None:
    for name, seed, digest in (("a0", 0, A), ("a1", 1, A), ("b0", 0, B), ("b2", 2, B)):
        write_run(f"runs/{name}", [0.5], method=OWN, seed=seed, code=[record(own=digest)])
    one, other = f"{OWN} code={A[:8]}", f"{OWN} code={B[:8]}"
    assert used(tmp_path) == {one: ("a0", "a1"), other: ("b0", "b2")}
    told = f"its own code differs (own {B[:8]}… / {A[:8]}…); the second value is that of {one}"
    assert (other, told) in remarks(tmp_path)
    assert pack([str(tmp_path / "runs"), "--out", str(tmp_path / "packed")]) == 0
    assert used(tmp_path / "packed") == used(tmp_path / "runs")


def test_a_run_continued_with_changed_code_is_a_row_of_its_own(tmp_path: Path, write_run: WriteRun) -> None:
    whole = [{"from": 1, "to": 4}]
    mixed = [{"from": 1, "to": 2}, {"from": 3, "to": 4, "accepted": {"own": [A, B]}}]
    anew = [{"from": 1, "to": 4, "accepted": {"own": [A, B]}}]
    for name, seed, segments, digest in (
        ("a0", 0, whole, A),
        ("b1", 1, whole, B),
        ("ab2", 2, mixed, B),
        ("b3", 3, anew, B),  # it was continued before its first round, so no round is of the old code
    ):
        write_run(name, [0.5] * 4, method=OWN, seed=seed, segments=segments, code=[record(own=digest)])
    both = f"{OWN} code={A[:8]} then {B[:8]} from round 3"
    assert used(tmp_path) == {
        f"{OWN} code={A[:8]}": ("a0",),
        f"{OWN} code={B[:8]}": ("b1", "b3"),
        both: ("ab2",),
    }
    said = f"its runs were continued from round 3 on with changed code (own {A[:8]}… / {B[:8]}…)"
    assert (both, said) in remarks(tmp_path)

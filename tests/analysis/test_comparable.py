"""Runs are compared only where all but the method is equal; what differs is named wherever they stand
side by side.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.figures.curves import class_accuracy, task_curves, tasks
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.compare import comparison_table, ranking
from raffed.analysis.metrics.summary import summary, to_html, to_latex, to_markdown, to_text
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.runs.comparable import MARK, apart, comparability, differences, notices
from raffed.analysis.runs.conditions import ALIKE
from raffed.analysis.runs.groups import Group, groups
from raffed.analysis.runs.load import Runs
from raffed.analysis.sections import task_sections
from raffed.analysis.sweeps import Sweep, tuning_table
from raffed.analysis.table import as_markdown

from raffed.config.run import OMITTED_WHEN_DEFAULT, YOUNGER, RunConfig
from raffed.data.catalogue import DATASETS
from tests.analysis.changed_run import change
from tests.params import one_in

WriteRun = Callable[..., Path]
ONE, OTHER = "a1b2c3d4" * 8, "c3d4e5f6" * 8


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


UNLIKE: list[tuple[str, Any, str]] = [
    ("partition_sha256", OTHER, "the partition differs (c3d4e5f6… / a1b2c3d4…)"),
    ("config.model.name", "lenet", "the network differs (lenet / mlp)"),
    ("config.model.args", {"hidden": [64]}, "model.args.hidden differs ([64] / none)"),
    ("config.data.samples", 600, "data.samples differs (600 / 0)"),
    ("config.data.validation", 0.1, "data.validation differs (0.1 / 0)"),
    ("data_sha256", "ab" * 32, f"data_sha256 differs ({'ab' * 32} / none)"),
    ("config.federation.rounds", 9, "federation.rounds differs (9 / 2)"),
    ("config.federation.participation", 0.5, "federation.participation differs (0.5 / 1)"),
    ("config.federation.weighting", "clients", "federation.weighting differs (clients / none)"),
    ("config.local.lr", 0.5, "local.lr differs (0.5 / "),
    ("config.local.epochs", 7, "local.epochs differs (7 / "),
    ("config.local.min_steps", 70, "local.min_steps differs (70 / 1)"),
    ("config.local.batch_size", 7, "local.batch_size differs (7 / 64)"),
    ("config.local.momentum", 0.1, "local.momentum differs (0.1 / 0.9)"),
    ("config.numerics.precision", "bf16", "numerics.precision differs (bf16 / fp32)"),
    ("config.privacy.noise", 1.5, "privacy.noise differs (1.5 / 0)"),
    ("config.faults.drop", 0.5, "faults.drop differs (0.5 / 0)"),
]


IN_EVERY_FORM = ("partition_sha256", "config.model.args")


@pytest.mark.parametrize(("where", "value", "said"), one_in(4, UNLIKE), ids=[where for where, _, _ in UNLIKE])
def test_what_differs_is_named_in_every_form_and_is_never_tested(
    tmp_path: Path, write_run: WriteRun, where: str, value: object, said: str
) -> None:
    pair(write_run, where, value)
    runs = load_runs([tmp_path])
    table = summary(runs)
    told = f"not comparable: {said}"
    assert any(told in cell for cell in table["comparable"])
    assert comparison_table(runs, groups(runs)) is None
    if where not in IN_EVERY_FORM:
        return
    for shown in (to_text(table), table.to_csv()):
        assert told in shown
    plain = said.partition(" differs")[0].replace("_", "\\_")
    assert f"not comparable: {plain}" in to_markdown(table)
    assert f"not comparable: {plain}" in to_latex(table)
    assert "not comparable: " in to_html(table)
    assert "<strong>" not in to_html(table, best=["Aggregation, last %"]), (
        "nothing is best of what may not be compared"
    )
    assert "p (" not in task_sections(runs, groups(runs))


def test_equal_runs_of_two_methods_are_compared_and_nothing_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    pair(write_run)
    runs = load_runs([tmp_path])
    assert "comparable" not in summary(runs)
    assert "<strong>" in to_html(summary(runs), best=["Aggregation, last %"])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.rows[0][:2] == ["fedavg", "3"]
    assert notices(runs, groups(runs)) == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("config.args", {"mu": 0.5}),
        ("config.federation.survey", 2),
        ("config.federation.eval_every", 2),
        ("config.federation.strength_every", 2),
        ("config.runtime.actors", 9),
        ("config.data.root", "/elsewhere"),
    ],
)
def test_the_method_s_arguments_and_what_trains_nothing_may_differ(
    tmp_path: Path, write_run: WriteRun, where: str, value: object
) -> None:
    pair(write_run, where, value)
    runs = load_runs([tmp_path])
    assert all(not one.against for one in comparability(runs, groups(runs)).values())


ROUNDED: list[tuple[str, Any]] = [
    ("cohort", 8),
    ("bits", "portable"),
    ("convolutions", "compiled"),
]


@pytest.mark.parametrize(("field", "value"), ROUNDED)
def test_what_changes_rounding_only_is_named_and_the_rows_are_compared(
    tmp_path: Path, write_run: WriteRun, field: str, value: object
) -> None:
    pair(write_run, f"config.numerics.{field}", value)
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert table.rows[0][:2] == ["fedavg", "3"]
    (told,) = (cell for cell in summary(runs)["comparable"] if cell != "yes")
    assert told.startswith(f"yes; numerics.{field} differs (")
    assert told.endswith("): this changes rounding only")


def test_a_stopped_run_is_not_compared_with_finished_ones(tmp_path: Path, write_run: WriteRun) -> None:
    pair(write_run)
    for seed in range(3):
        write_run(
            f"map{seed}", [0.9], method="map", seed=seed, state="running", planned=2, partition_sha256=ONE
        )
        config = RunConfig(method="map", seed=seed).as_dict()
        change(tmp_path / f"map{seed}", "config", config)
        change(tmp_path / f"map{seed}", "config.federation.rounds", 2)
    (told,) = (cell for cell in summary(load_runs([tmp_path]))["comparable"] if cell.startswith("not"))
    assert "the number of rounds done differs (1 / 2)" in told


def test_one_partition_under_two_names_is_one_task_and_is_compared(
    tmp_path: Path, write_run: WriteRun
) -> None:
    pair(write_run, seeds=2, other_split="file:a/my.npz")
    runs = load_runs([tmp_path])
    assert list(tasks(runs)) == [("digits", "p10c2 = file:a/my.npz")]
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert len(table.rows) == 1
    assert any(
        "the partition has two names (" in cell and "is the same" in cell
        for cell in summary(runs)["comparable"]
    )


def test_runs_from_before_the_hash_was_recorded_are_compared_by_name_and_that_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    pair(write_run, "partition_sha256", None)
    runs = load_runs([tmp_path])
    assert comparison_table(runs, groups(runs)) is not None
    assert summary(runs)["comparable"].str.contains("hash is not recorded").any()


def test_no_mean_is_over_partitions_that_only_share_a_file_s_name(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Seed 0 is of one partition, seeds 1 and 2 of another: two experiments, told apart by their hashes."""
    for seed in range(3):
        write_run(f"s{seed}", [0.5], seed=seed, split="file:my.npz", partition_sha256=OTHER if seed else ONE)
    found = groups(load_runs([tmp_path]))
    assert {group.label: group.used for group in found} == {
        "fedavg partition=a1b2c3d4": ("s0",),
        "fedavg partition=c3d4e5f6": ("s1", "s2"),
    }
    for group in found:
        (curve,) = (
            one
            for one in task_curves(load_runs([tmp_path]), found[0].task, "Aggregation accuracy")
            if one.label.removesuffix(MARK) == group.label
        )
        assert curve.mean.tolist() == [0.5]


def test_a_drawn_partition_of_one_seed_with_two_hashes_is_two_experiments(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for name, seed, digest in (("a0", 0, ONE), ("a1", 1, "e" * 64), ("b0", 0, OTHER)):
        write_run(name, [0.5], seed=seed, partition_sha256=digest)
    assert sorted(group.used for group in groups(load_runs([tmp_path]))) == [("a0", "a1"), ("b0",)]


def three(write_run: WriteRun, tmp_path: Path) -> Runs:
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
    return load_runs([tmp_path])


def test_every_view_keeps_or_marks_what_may_not_be_compared(tmp_path: Path, write_run: WriteRun) -> None:
    runs = three(write_run, tmp_path)
    members = tasks(runs)["digits", "p10c2"]
    table = comparison_table(runs, members)
    assert table is not None
    assert [line[0] for line in table.rows] == ["fedavg", "map"]
    assert table.rows[1][1:6] == ["–"] * 5
    assert table.rows[1][6].startswith("not comparable: the partition differs")
    targets = target_table(runs, members)
    assert targets is not None
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


def test_a_method_without_a_seed_of_the_baseline_does_not_never_reach_its_target(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for method, seed in (("fedavg", 0), ("map", 1)):
        write_run(method, [0.5, 0.6], method=method, seed=seed, partition_sha256=ONE)
    runs = load_runs([tmp_path])
    targets = target_table(runs, groups(runs))
    assert targets is not None
    assert targets.rows[1] == ["map", "–", "no common seed", "–"]


def test_sets_that_may_be_compared_among_themselves_are_tested_there_and_only_there(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for rounds, digest in ((1, ONE), (2, ONE)):
        for method, score in (("fedavg", 0.5), ("fedprox", 0.6)):
            for seed in range(2):
                write_run(
                    f"{method}{rounds}-{seed}",
                    [score] * rounds,
                    method=method,
                    seed=seed,
                    partition_sha256=digest,
                )
    runs = load_runs([tmp_path])
    table = comparison_table(runs, groups(runs))
    assert table is not None
    assert {(line[0], line[1]) for line in table.rows} == {
        ("fedavg rounds=1", "fedprox rounds=1"),
        ("fedavg rounds=2", "fedprox rounds=2"),
    }


def test_a_rate_that_a_sweep_chose_for_each_method_belongs_to_the_method(
    tmp_path: Path, write_run: WriteRun
) -> None:
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
    runs = load_runs([tmp_path])
    assert differences(runs, *groups(runs)) == []
    (told,) = (cell for cell in summary(runs)["comparable"] if cell != "yes")
    assert "local.lr differs (0.5123 / 0.1): it was chosen for each method by the sweep" in told
    assert "Comparable" not in tuning_table(Sweep(tmp_path, about), runs).titles
    change(tmp_path / "map/final/seed-1", "partition_sha256", OTHER)
    table = tuning_table(Sweep(tmp_path, about), load_runs([tmp_path]))
    assert "the partition differs (c3d4e5f6… / a1b2c3d4…, in 1 of 2 seeds)" in as_markdown(table)


def test_equal_styles_of_preprocessing_are_those_of_raffed() -> None:
    """`p10c2` and `file:` of one partition have other styles, and where these are one transform the runs
    may be compared.
    """
    for dataset, info in DATASETS.items():
        styles: dict[Any, list[str]] = {}
        for style, transform in info.transforms.items():
            styles.setdefault(transform, []).append(style)
        known = [set(one) for one in styles.values() if len(one) > 1]
        said = [set(one.split()) for one in ALIKE.get(dataset, ())]
        assert sorted(map(sorted, said)) == sorted(map(sorted, known)), dataset


def test_a_group_without_a_task_of_its_own_is_judged_alone() -> None:
    assert comparability(load_runs([]), []) == {}
    assert Group("a", "d", "p", (), "").task == ("d", "p")


def test_runs_that_one_rule_ended_after_other_numbers_of_rounds_may_be_compared(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for method, rounds in (("fedavg", 2), ("fedprox", 3)):
        folder = write_run(method, [0.5] * rounds, method=method, planned=9, partition_sha256=ONE)
        change(folder, "config.federation.stop_when", "val.accuracy no better for 1 rounds")
        if method == "fedavg":
            change(folder, "ended_early", "no better for 1 rounds")
    one = load_runs([tmp_path])
    assert [str(found) for found in differences(one, *groups(one))] == [
        "the number of rounds done differs (9 / 3)"
    ]
    change(folder, "ended_early", "no better for 1 rounds")
    both = load_runs([tmp_path])
    assert differences(both, *groups(both)) == []


def test_what_was_not_asked_for_is_what_runs_of_earlier_versions_lack(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """A run of a version that did not know a setting, and a run of this version, repeat one experiment."""
    for seed, young in ((0, True), (1, False)):
        config = RunConfig(seed=seed).as_dict()
        for name, fields in YOUNGER.items():
            for field in fields:
                if not young:
                    del config[name][field]
        for name in OMITTED_WHEN_DEFAULT:
            if not young:
                del config[name]
        write_run(f"run{seed}", [0.5], seed=seed, config=config)
    assert [group.used for group in groups(load_runs([tmp_path]))] == [("run0", "run1")]

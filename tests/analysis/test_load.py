"""Whatever lies in the folders: what can be read is reported, what cannot is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from raffed.analysis import load_runs
from raffed.analysis.__main__ import main
from raffed.analysis.runs.groups import groups

from tests.analysis.changed_run import change
from tests.forging import sha256

WriteRun = Callable[..., Path]


def test_runs_are_found_at_any_depth_and_once(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("grid/mu=0.1/a", [0.5])
    write_run("b", [0.5])
    runs = load_runs([tmp_path, tmp_path / "b", str(tmp_path / "grid")])
    assert sorted(runs.runs.index) == ["a", "b"]
    assert dict(runs.unreadable) == {}


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("x/a", [0.5])
    write_run("y/a", [0.6])
    assert sorted(load_runs([tmp_path]).runs.index) == ["x/a", "y/a"]


def test_one_path_is_as_a_list_of_it(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5])
    assert [list(load_runs(one).runs.index) for one in (tmp_path, str(tmp_path), [tmp_path])] == [["a"]] * 3


def test_the_configuration_is_flattened_into_columns(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5, 0.6], args={"mu": 0.1}, planned=9)
    row = load_runs([tmp_path]).runs.loc["a"]
    assert (row["config.local.lr"], row["config.method_args.mu"], row["versions.ray"]) == (
        0.05,
        0.1,
        "2.54.0",
    )
    assert (row["rounds_done"], row["rounds_planned"]) == (2, 9)


def test_null_clients_and_classes_arrive_as_missing(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5])
    metrics = load_runs([tmp_path]).metrics
    test = metrics[(metrics["split"] == "test") & (metrics["metric"] == "accuracy")]
    assert test["client"].isna().all()
    assert test["class"].isna().sum() == 1


def test_a_killed_run_counts_as_far_as_it_was_written(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run("a", [0.1 * r for r in range(1, 8)], state="running", planned=20, rounds_done=0)
    (folder / "metrics" / ".part-000008-000008.parquet.tmp").write_bytes(b"half a file")
    runs = load_runs([tmp_path])
    assert runs.runs.at["a", "rounds_done"] == 7
    assert dict(runs.unreadable) == {}


def test_a_damaged_part_is_named_and_the_others_are_read(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run("a", [0.5] * 10)
    torn = folder / "metrics" / "part-000006-000010.parquet"
    torn.write_bytes(torn.read_bytes()[:100])
    runs = load_runs([tmp_path])
    assert list(runs.unreadable) == [str(torn)]
    assert runs.runs.at["a", "rounds_done"] == 5


@pytest.mark.parametrize(
    ("lost", "told"), [([1], "1-5"), ([2], "6-10"), ([1, 3], "1-5, 11-12"), ([1, 2, 3], "1-12")]
)
def test_lost_parts_are_told_by_their_rounds_and_the_others_are_read(
    tmp_path: Path, write_run: WriteRun, lost: list[int], told: str
) -> None:
    folder = write_run("a", [0.5] * 12)
    parts = sorted((folder / "metrics").iterdir())
    for number in lost:
        parts[number - 1].unlink()
    runs = load_runs([tmp_path])
    assert dict(runs.unreadable) == {
        str(folder / "metrics"): f"no part has the rows of rounds {told}; put them back"
    }
    assert len(runs.runs) == 1


def test_a_part_of_a_later_schema_is_named_with_its_number(tmp_path: Path, write_run: WriteRun) -> None:
    (part,) = (write_run("a", [0.5]) / "metrics").iterdir()
    pq.write_table(pq.ParquetFile(part).read().replace_schema_metadata({b"raffed.schema": b"99"}), part)
    change(tmp_path / "a", "files", {f"metrics/{part.name}": sha256(part)})
    assert "schema 99" in load_runs([tmp_path]).unreadable[str(part)]


@pytest.mark.parametrize("text", ['{"run_id"', "[]", "\x00"])
def test_a_damaged_run_json_costs_that_run_only(tmp_path: Path, write_run: WriteRun, text: str) -> None:
    write_run("good", [0.5])
    (write_run("bad", [0.5]) / "run.json").write_text(text)
    runs = load_runs([tmp_path])
    assert list(runs.runs.index) == ["good"]
    assert list(runs.unreadable) == [str(tmp_path / "bad")]


def test_a_run_before_its_first_flush_is_described_by_its_configuration(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [], method="fedmr", state="running", planned=5)
    row = load_runs([tmp_path]).runs.loc["a"]
    assert (row["method"], row["partition"], row["rounds_done"]) == ("fedmr", "p10c2", 0)


def test_runs_that_differ_in_seed_and_execution_only_are_one_group(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed in (0, 1):
        write_run(f"s{seed}", [0.5], seed=seed)  # the fixture varies runtime.actors with the seed
    (group,) = groups(load_runs([tmp_path]))
    assert group.used == ("s0", "s1")
    assert group.label == "fedavg"


def test_how_a_number_is_spelt_and_where_the_data_are_make_no_other_experiment(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Nor does a setting at none, or one that asks for nothing and that a run of an older version does
    not have.
    """
    for seed, (epochs, data, federation) in enumerate(
        [
            (5, {"root": None, "local_test": None}, {"rounds": 9}),
            (
                5.0,
                {"root": "/data", "download": True, "samples": 0},
                {"rounds": 9.0, "weighting": "", "survey": 0},
            ),
        ]
    ):
        write_run(
            f"s{seed}",
            [0.5],
            seed=seed,
            config={
                "method": "fedavg",
                "seed": seed,
                "data": {"dataset": "digits", "split": "p10c2", **data},
                "local": {"epochs": epochs},
                "federation": federation,
            },
        )
    (group,) = groups(load_runs([tmp_path]))
    assert (group.label, group.used) == ("fedavg", ("s0", "s1"))


def test_forks_of_several_seeds_are_one_experiment_if_their_runs_were(
    tmp_path: Path, write_run: WriteRun
) -> None:
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
    found = sorted(groups(load_runs([tmp_path])), key=lambda group: group.used)
    assert [group.used for group in found] == [("s0", "s1"), ("s2",)]
    assert all(re.fullmatch("fedavg forked_from=[0-9a-f]{8}", group.label) for group in found)


def test_no_two_groups_of_a_task_share_a_label(tmp_path: Path, write_run: WriteRun) -> None:
    """Tables go by labels. Here the settings differ where labels do not look: in what the task is."""
    for name, split in (("a", "p10c2"), ("b", "P10C2")):
        write_run(
            name, [0.5], config={"method": "fedavg", "seed": 0, "data": {"dataset": "digits", "split": split}}
        )
    assert {group.label for group in groups(load_runs([tmp_path]))} == {"fedavg", "fedavg (2)"}


def test_a_label_names_the_settings_that_tell_two_groups_of_a_method_apart(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5], method="fedprox", args={"mu": 0.1})
    write_run("b", [0.5], method="fedprox", args={"mu": 1.0})
    write_run("c", [0.5])
    labels = {group.label for group in groups(load_runs([tmp_path]))}
    assert labels == {"fedprox mu=0.1", "fedprox mu=1", "fedavg"}


def test_unfinished_runs_and_repeated_seeds_stay_out_of_a_finished_group_and_say_why(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5, 0.5], seed=0)
    write_run("again", [0.5, 0.5], seed=0)
    write_run("killed", [0.5], seed=1, state="running", planned=2)
    (group,) = groups(load_runs([tmp_path]))
    assert group.used == ("a",)
    assert dict(group.left_out) == {
        "again": "the same run again: a has the same seed, as many rounds and equal results",
        "killed": "running after 1 rounds, while others are finished",
    }
    assert group.state == "2 finished, 1 running"


def test_where_no_run_is_finished_the_unfinished_ones_count(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5], state="running", planned=2)
    (group,) = groups(load_runs([tmp_path]))
    assert (group.used, group.state) == (("a",), "running")


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

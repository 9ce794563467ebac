"""Of the runs of one seed a whole one is used, and of each other one the true reason is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary
from raffed.analysis.runs.comparable import notices
from raffed.analysis.runs.groups import Group, groups

from raffed.results.files import file_sha256
from tests.analysis.changed_run import change

WriteRun = Callable[..., Path]
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


def without_last_part(run: Path) -> None:
    max((run / "metrics").iterdir()).unlink()


def exchanged_part(run: Path) -> None:
    """The hash in run.json is that of other rows."""
    files = {f"metrics/{path.name}": file_sha256(path) for path in (run / "metrics").iterdir()}
    change(run, "files", {**files, max(files): "0" * 64})


DAMAGES: dict[Callable[[Path], None], str] = {
    truncated: "part-000006-000008.parquet: ",
    without_first_part: "metrics: no part has the rows of rounds 1-5; put them back",
    without_last_part: "metrics: no part has the rows of rounds 6-8; put them back",
    exchanged_part: "part-000006-000008.parquet: it was changed, run.json has another hash; put back a copy",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_never_stands_for_a_whole_run(
    tmp_path: Path, write_run: WriteRun, damage: Callable[[Path], None]
) -> None:
    """The copy comes first by its name, and its run.json has as many rounds, or more."""
    for name, rounds in (("a-copy", ROUNDS), ("whole", ROUNDS - 2)):
        write_run(name, [0.5] * rounds, planned=ROUNDS)
    damage(tmp_path / "a-copy")
    group = only(tmp_path)
    assert group.used == ("whole",)
    ((name, why),) = group.left_out
    assert name == "a-copy"
    assert why.startswith(f"its rows are not as the run wrote them ({DAMAGES[damage]}")
    assert why.endswith("and whole has the same seed")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_in_no_mean_with_whole_ones(
    tmp_path: Path, write_run: WriteRun, damage: Callable[[Path], None]
) -> None:
    for seed in range(3):
        write_run(f"s{seed}", [0.1 * (seed + 1)] * ROUNDS, seed=seed)
    damage(tmp_path / "s2")
    group = only(tmp_path)
    assert group.used == ("s0", "s1")
    assert dict(group.left_out)["s2"].endswith("and others are finished and whole")
    assert summary(load_runs(tmp_path))["accuracy_last"].tolist() == pytest.approx([0.15])


def test_a_whole_unfinished_run_goes_before_a_damaged_finished_one(
    tmp_path: Path, write_run: WriteRun
) -> None:
    without_last_part(write_run("finished", [0.5] * ROUNDS))
    write_run("stopped", [0.5] * 3, state="stopped", planned=ROUNDS)
    assert only(tmp_path).used == ("stopped",)


def test_where_all_runs_are_damaged_those_with_most_rounds_are_shown(
    tmp_path: Path, write_run: WriteRun
) -> None:
    without_first_part(write_run("late", [0.5] * ROUNDS))
    without_last_part(write_run("early", [0.5] * ROUNDS))
    assert only(tmp_path).used == ("late",)


def test_an_edited_run_json_costs_that_run_only_and_is_named(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a-copy", [0.5] * ROUNDS)
    write_run("whole", [0.5] * ROUNDS)
    change(tmp_path / "a-copy", "config.local.lr", 0.05)  # seals the file
    path = tmp_path / "a-copy" / "run.json"
    text = path.read_text()
    assert "12.3" in text
    path.write_text(text.replace("12.3", "99.9"))
    runs = load_runs(tmp_path)
    assert [group.used for group in groups(runs)] == [("whole",)]
    assert "was edited or damaged" in runs.unreadable[str(tmp_path / "a-copy")]


def test_fewer_rounds_of_a_seed_are_told_with_both_numbers(tmp_path: Path, write_run: WriteRun) -> None:
    for name, rounds in (("a", 2), ("b", 3)):
        write_run(name, [0.5] * rounds, state="stopped", planned=9)
    group = only(tmp_path)
    assert group.used == ("b",)
    assert group.left_out == (("a", "seed 0 is there already with more rounds: b has 3, this run 2"),)


def test_a_copy_is_the_same_run_again(tmp_path: Path, write_run: WriteRun) -> None:
    for name in ("a", "b"):
        write_run(name, [0.5])
    runs = load_runs(tmp_path)
    (group,) = groups(runs)
    assert group.left_out == (
        ("b", "the same run again: a has the same seed, as many rounds and equal results"),
    )
    assert notices(runs, [group]) == []


def test_unequal_results_of_one_seed_are_told_with_the_other_run(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5])
    write_run("b", [0.6], hashes=OTHER)
    runs = load_runs(tmp_path)
    (group,) = groups(runs)
    assert (group.used, group.contradicted_by) == (("a",), ("b",))
    ((_, why),) = group.left_out
    assert "the results differ: a has as many rounds, but other hashes of weights and metric rows" in why
    ((_, remark),) = notices(runs, [group])
    assert remark.startswith("another run of the same seed has other results (b)")
    assert summary(runs)["comparable"].tolist() == [f"yes; {remark}"]


def test_runs_without_hashes_are_only_said_to_have_as_many_rounds(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for name in ("a", "b"):
        write_run(name, [0.5], state="stopped", planned=9, hashes={})
    assert only(tmp_path).left_out == (("b", "seed 0 is there already: a has as many rounds"),)

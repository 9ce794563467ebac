"""Which mean of a column is bold: that of the method that the tests found to be best."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.compare import established_best, paired_tables
from raffed.analysis.metrics.targets import target_table
from raffed.analysis.report import write_report
from raffed.analysis.runs.groups import groups

from tests.analysis.changed_run import change

WriteRun = Callable[..., Path]


def bold(folder: Path) -> dict[str, list[str]]:
    """Method → what is bold in its row of the summary of a report."""
    page = write_report([folder], folder / "report").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>(<td.*?)</tr>", page[: page.index("Differences, paired by seed")], re.DOTALL)
    found = {
        re.sub("<.*?>", "", row.partition("</td>")[0]): re.findall("<strong>(.*?)<", row) for row in rows
    }
    return {method: cells for method, cells in found.items() if cells}


def write_seeds(write_run: WriteRun, method: str, scores: dict[int, list[float]]) -> list[Path]:
    return [write_run(f"{method}{seed}", score, method=method, seed=seed) for seed, score in scores.items()]


def test_the_best_over_common_seeds_is_bold_although_another_one_also_has_easy_seeds(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """MAP is 10 points above FedAvg with each seed of both. FedAvg's mean is higher for its further seeds."""
    write_seeds(write_run, "map", {seed: [0.6 + 0.01 * seed] for seed in range(3)})
    lower = {seed: [0.5 + 0.0101 * seed] for seed in range(3)}
    write_seeds(write_run, "fedavg", lower | {seed: [0.9] for seed in range(3, 9)})
    runs = load_runs([tmp_path])
    assert established_best(runs, groups(runs), "accuracy_last") == {"map"}
    assert set(bold(tmp_path)) == {"MAP"}


def test_what_was_not_tested_is_not_bold(tmp_path: Path, write_run: WriteRun) -> None:
    """MOON was evaluated in other rounds, so its best round was compared with nobody's."""
    write_seeds(write_run, "map", {seed: [0.5 + 0.01 * seed, 0.6 + 0.01 * seed] for seed in range(3)})
    write_seeds(write_run, "fedavg", {seed: [0.4 + 0.01 * seed, 0.5 + 0.0101 * seed] for seed in range(3)})
    moon = {seed: [0.7 + 0.01 * seed, 0.55 + 0.0102 * seed] for seed in range(3)}
    for folder in write_seeds(write_run, "moon", moon):
        change(folder, "config.federation.eval_every", 5)
    found = bold(tmp_path)
    assert set(found) == {"MAP"}
    assert [cell.partition(" ")[0] for cell in found["MAP"]] == ["61.00", "61.00", "56.00"]


@pytest.mark.more
@pytest.mark.parametrize("level", [0.55, 0.7])
def test_a_method_on_two_names_of_one_partition_has_two_rows_in_every_table(
    tmp_path: Path, write_run: WriteRun, level: float
) -> None:
    """FedAvg was run on the drawn partition and on a file with the same lists; both rows are tested."""
    for seed in range(3):
        write_run(f"m{seed}", [0.6 + 0.01 * seed], method="map", seed=seed, split="file:x.npz")
        write_run(f"f{seed}", [0.5 + 0.0101 * seed], seed=seed, split="file:x.npz")
        write_run(f"d{seed}", [level + 0.0121 * seed], seed=seed)
    runs = load_runs([tmp_path])
    members = groups(runs)
    assert len({group.task for group in members}) == 1
    assert len({group.label for group in members}) == 3
    assert len(paired_tables(runs, members)["Differences, paired by seed"].rows) == 2
    means = [cells[0].partition(" ")[0] for cells in bold(tmp_path).values()]
    assert means == ["61.00" if level == 0.55 else "71.21"]


@pytest.mark.parametrize("level", [0.1, 0.9])
def test_methods_that_share_seeds_are_compared_although_another_one_shares_none_with_them(
    tmp_path: Path, write_run: WriteRun, level: float
) -> None:
    """MOON has other seeds, so nothing is known of its difference to the others."""
    write_seeds(write_run, "map", {seed: [0.6 + 0.01 * seed] for seed in range(3)})
    write_seeds(write_run, "fedprox", {seed: [0.5 + 0.01 * seed**2] for seed in range(3)})
    write_seeds(write_run, "moon", {seed: [level] for seed in range(10, 13)})
    runs = load_runs([tmp_path])
    table = paired_tables(runs, groups(runs))["Differences, paired by seed"]
    assert table.titles[2] == "Difference to map, points"
    rows = {row[0]: row[1:3] for row in table.rows}
    assert rows["moon"] == ["0", "–"]
    assert rows["fedprox"][1].startswith("−9.33 ± ")  # of 10, 10 and 8 points
    assert not established_best(runs, groups(runs), "accuracy_last")


def test_of_several_fedavgs_that_is_the_baseline_which_may_be_compared_with_most(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """The label of the one with fewer epochs comes first, but no other method has its budget."""
    odd = write_seeds(write_run, "fedavg", {7: [0.5, 0.7]})[0]
    change(odd, "config.local.epochs", 0.5)
    write_run("usual", [0.4, 0.6])
    write_run("map", [0.6, 0.8], method="map")
    runs = load_runs([tmp_path])
    members = groups(runs)
    assert [group.label for group in members] == ["fedavg epochs=0.5", "fedavg epochs=1", "map"]
    table = target_table(runs, members)
    assert table is not None
    assert table.titles[2] == "Rounds to fedavg epochs=1's best"
    assert [row[2] for row in table.rows] == ["not comparable", "2.0", "1.0"]

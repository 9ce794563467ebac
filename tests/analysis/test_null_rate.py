"""The null rate: how many cells agree if the baseline's own runs stand in every row's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.reproduction.null_rate import CANNOT_TELL, Agreement, agreement_of
from raffed.analysis.reproduction.verdict_rows import verdict_rows
from raffed.analysis.runs.load import Runs
from raffed.analysis.sections import paper_section
from raffed.reproductions.pages.checker_page import _line

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
Table = tuple[Reproduction, Runs]
ALIKE = {"FedAvg": 50.0, "FedProx": 50.2, "FedRS": 49.8, "MOON": 55.0}
APART = {"FedAvg": 50.0, "FedProx": 54.0, "FedRS": 46.0, "MOON": 55.0}
SCORES = {"FedAvg": [0.499, 0.500, 0.501], "FedProx": [0.539, 0.540, 0.541]}


@pytest.fixture
def table(tmp_path: Path, write_run: WriteRun) -> Callable[..., Table]:
    """Write a table with the column IID and the margin 1, of these printed numbers and scores by seed."""

    def write(
        printed: Mapping[str, float],
        scores: Mapping[str, Sequence[float]],
        scale: str = "full",
        left_out: Sequence[str] = (),
    ) -> Table:
        cells = []
        for row, number in printed.items():
            values = scores.get(row, scores["FedAvg"])
            names = [
                write_run(f"{row}-{seed}", [value], method=row.lower(), seed=seed).name
                for seed, value in enumerate(values)
            ]
            cells.append({"row": row, "column": "IID", "printed": {"value": number}, "runs": names})
        item = written_item(tmp_path, cells, scale=scale, left_out=left_out)
        return item, load_runs(run_folders(item))

    return write


def test_a_table_whose_rows_are_all_fedavg_agrees_as_often_as_fedavg_does(
    table: Callable[..., Table],
) -> None:
    """Every row has FedAvg's accuracies: three of four printed numbers are within a point of them."""
    item, runs = table(ALIKE, {"FedAvg": SCORES["FedAvg"]})
    found = agreement_of(item, runs)
    assert found == Agreement("FedAvg", 3, 4, 3, 4)
    assert not found.tells
    assert found.sentence() == f"3 of 4 agree; FedAvg in their place: 3 of 4. {CANNOT_TELL}"


def test_a_table_with_differences_larger_than_its_margin_can_tell(table: Callable[..., Table]) -> None:
    """FedProx has the 54 that are printed. FedAvg agrees in its own place alone."""
    item, runs = table(APART, {**SCORES, "MOON": [0.559, 0.560, 0.561]})
    found = agreement_of(item, runs)
    assert found == Agreement("FedAvg", 2, 4, 1, 4)
    assert found.tells
    assert found.null_rate == 0.25
    assert found.sentence() == "2 of 4 agree; FedAvg in their place: 1 of 4"


def test_the_count_stands_with_its_null_rate_wherever_it_is_shown(table: Callable[..., Table]) -> None:
    item, runs = table(ALIKE, {"FedAvg": SCORES["FedAvg"]})
    for text in (item_markdown(item, runs), str(paper_section(item, runs)), " ".join(_line(item, runs))):
        assert "FedAvg in their place: 3 of 4" in text
        assert "This table cannot tell" in text
    assert {row["null_rate"] for row in verdict_rows(item, runs)} == {0.75}


def test_one_seed_agrees_with_nothing_also_in_fedavg_s_place(table: Callable[..., Table]) -> None:
    item, runs = table(ALIKE, {"FedAvg": [0.5]})
    assert agreement_of(item, runs) == Agreement("FedAvg", 0, 4, 0, 4)


def test_where_fedavg_diverged_or_was_not_run_nothing_stands_in_its_place(
    table: Callable[..., Table],
) -> None:
    lost = ["FedAvg, IID: diverged: seed 3: a value is not finite"]
    item, runs = table(ALIKE, SCORES, left_out=lost)
    assert agreement_of(item, runs) == Agreement("FedAvg", 1, 3, 0, 3)


def test_without_a_run_of_fedavg_there_is_no_null_rate(table: Callable[..., Table]) -> None:
    item, runs = table(ALIKE, {"FedAvg": [], "FedProx": [0.501, 0.502, 0.503]})
    assert agreement_of(item, runs) == Agreement("FedAvg", 1, 1, 0, 0)
    assert agreement_of(item, runs).sentence() == "1 of 1 agree; no run of FedAvg"


@pytest.mark.parametrize("scale", ["proxy", "smoke"])
def test_no_level_is_counted_at_a_smaller_scale(table: Callable[..., Table], scale: str) -> None:
    found = agreement_of(*table(ALIKE, SCORES, scale))
    assert (found.judged, found.sentence()) == (0, "")

"""The picture of a table has each cell with both numbers once, and shows its margin by a bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from raffed.analysis.figures.printed_plots import LOOKS
from raffed.analysis.figures.theme import LIGHT
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.reproduction.printed_view import printed_view
from raffed.analysis.runs.load import Runs

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
PRINTED = {"FedAvg": 50.0, "FedRS": 52.0, "FedMR": None}
OURS = {"FedAvg": [0.50, 0.51, 0.52], "FedRS": [0.58, 0.58, 0.58], "FedMR": [0.60, 0.60, 0.60]}


@pytest.fixture
def table(tmp_path: Path, write_run: WriteRun) -> Callable[..., tuple[Reproduction, Runs]]:
    """Write a table with the column IID. A row without a printed number is FedMR."""

    def write(
        ours: Mapping[str, Sequence[float]] = OURS, target: bool = True, **about: Any
    ) -> tuple[Reproduction, Runs]:
        cells = []
        for row, printed in PRINTED.items():
            values = ours.get(row, [])
            folders = [
                write_run(f"{row}-{seed}", [value], method=row.lower(), seed=seed)
                for seed, value in enumerate(values)
            ]
            cells.append(
                {
                    "row": row,
                    "column": "IID",
                    "printed": {} if printed is None else {"value": printed},
                    "runs": [f"../{folder.name}" for folder in folders],
                    "target": target,
                }
            )
        return written_item(tmp_path / "item", cells, **about), load_runs([tmp_path])

    return write


def panel(item: Reproduction, runs: Runs) -> Axes:
    (drawn,) = printed_view(item, runs).figures
    return drawn.figure.axes[0]


def rows(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_yticklabels()]


def points(axes: Axes, y: int) -> list[list[float]]:
    """Return the values of the marks in a row: the printed numbers, then seeds if there are any, our mean."""
    found = [np.asarray(line.get_data(), float) for line in axes.get_lines()]
    return [line[0].round(6).tolist() for line in found if line.shape[1] and (line[1] == y).all()]


def test_each_cell_with_both_numbers_has_a_row_with_its_seeds_and_their_mean(table: Any) -> None:
    axes = panel(*table())
    assert rows(axes) == ["FedAvg", "FedRS"]  # nothing is printed of FedMR
    assert points(axes, 0) == [[50.0], [50.0, 51.0, 52.0], [51.0]]
    assert points(axes, 1) == [[52.0], [58.0, 58.0, 58.0], [58.0]]


def test_a_row_without_a_run_is_not_drawn(table: Any) -> None:
    assert rows(panel(*table({"FedRS": [0.5, 0.5]}))) == ["FedRS"]


def test_the_bar_is_the_margin_around_the_printed_number(table: Any) -> None:
    bars = panel(*table(margin=1.5)).patches
    found = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
    assert found == [pytest.approx((48.5, 51.5)), pytest.approx((50.5, 53.5))]


def test_what_is_no_target_has_no_bar_and_the_colour_of_nothing_judged(table: Any) -> None:
    axes = panel(*table(target=False))
    assert not list(axes.patches)
    lines = [line for line in axes.get_lines() if line.get_marker() != "|"]
    mean = [line for line in lines if len(np.atleast_1d(line.get_xdata())) == 1]
    assert {line.get_color() for line in mean} == {LIGHT.colours[LOOKS["plain"][0]]}


def test_at_proxy_scale_the_differences_to_the_baseline_are_drawn_beside_zero(table: Any) -> None:
    """FedRS is printed 2 points above FedAvg. Ours is 8, 7 and 6 points above it, seed by seed."""
    axes = panel(*table(scale="proxy"))
    assert rows(axes) == ["FedRS"]
    assert points(axes, 0) == [[2.0], [8.0, 7.0, 6.0], [7.0]]
    assert axes.get_xlabel() == "difference to FedAvg"
    assert any(np.asarray(line.get_xdata()).tolist() == [0.0, 0.0] for line in axes.get_lines())

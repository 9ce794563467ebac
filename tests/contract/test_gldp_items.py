"""What the sheet adds to GLDP's tables (experiments-gldp-mpfedcon.md, part B, G-X1), in its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import raffed
from analysis.load import load_runs
from analysis.measures import measures
from analysis.stages import VISITS, a_sel, forgetting
from raffed.core.config import RunConfig
from raffed.data.splits import parse_split
from raffed.data.stages import Stages
from raffed.experiments.registry import SCALES, Cell, find_item

Place = tuple[str, str]


def cells(name: str) -> dict[Place, Cell]:
    """(row, column) → the cell."""
    return {(cell.row, cell.column): cell for cell in find_item(name).cells}


def test_both_orders_of_stages_are_of_table_4_s_runs_and_differ_in_nothing_else() -> None:
    """G-X1: G-T4's settings; FedAvg stands beside its rows. The paper's order is `inner`: nothing is printed of the other."""
    found, table = cells("gldp/order"), cells("gldp/table4-selected")
    rows, columns = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    assert rows == ["FedAvg", *dict.fromkeys(row for row, _ in table)]
    tasks = "CIFAR10 [20,4,5] IF50", "CIFAR100 [20,20,5] IF50"
    assert columns == [f"{task} {order}" for task in tasks for order in ("inner", "outer")]
    assert len(found) == len(rows) * len(columns)
    for (row, column), inner in found.items():
        where, _, order = column.rpartition(" ")
        if order == "inner":
            outer = found[row, f"{where} outer"]
            split = f"{inner.config.data.split}:outer"
            assert outer.config == replace(inner.config, data=replace(inner.config.data, split=split))
            assert not outer.printed
            assert row == "FedAvg" or (inner.config, inner.printed) == (table[row, where].config, table[row, where].printed)


def scored_visits(config: RunConfig) -> dict[int, list[bool]]:
    """Stage → of each of its rounds, in order, whether the participants' models are scored in it."""
    split, federation = parse_split(config.data.split), config.federation
    none = np.zeros((1, split.stages or 1), dtype=np.int64)
    stages = Stages(none, none, "outer" if "outer" in split.options else "inner")
    found: dict[int, list[bool]] = {stage: [] for stage in range(stages.count)}
    for round in range(federation.rounds):
        asked = (round + 1) % federation.eval_every == 0 or round + 1 > federation.rounds - federation.survey
        found[stages.at(round, federation.rounds)].append(asked)
    return found


@pytest.mark.parametrize("scale", SCALES)
def test_every_stage_is_scored_in_its_last_visits_whatever_the_order(scale: str) -> None:
    """A_sel^(m) is the mean over the last ten visits of stage m, at most half of them, and F of a client's last one of each: in
    order `outer` the last rounds, which alone are surveyed at full scale, are of stage M only."""
    item = find_item("gldp/order")
    made = [run for cell in item.cells if (run := item.at(cell, scale)) is not None]
    assert {run.data.split.endswith(":outer") for run in made} == {False, True}
    for run in made:
        for visits in scored_visits(run).values():
            assert all(visits[-max(1, min(VISITS, len(visits) // 2)) :])


def test_a_run_in_order_outer_tells_a_sel_of_every_stage_and_what_is_forgotten(tmp_path: Path) -> None:
    item = find_item("gldp/order")
    small = item.at(cells("gldp/order")["GLDP full", "CIFAR10 [20,4,5] IF50 outer"], "smoke")
    assert small is not None
    frame = raffed.run(small, tmp_path / "run").to_pandas()
    assert frame.groupby("round")["stage"].unique().map(list).tolist() == [[0], [0], [1], [1], [2], [2]]
    runs = load_runs([tmp_path])
    assert a_sel(runs).notna().to_numpy().tolist() == [[True] * 3]
    assert forgetting(runs).notna().tolist() == [True]
    assert measures(runs)[["a_sel", "a_sel_drop", "a_glo"]].notna().to_numpy().all()

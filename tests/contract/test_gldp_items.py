"""Figure 3 and what is added to the tables (docs/papers/gldp.md §EB, G-X1 and G-X2)."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from raffed.analysis.metrics.stages import VISITS

from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.data.splits import parse_split
from raffed.data.stages import Stages
from raffed.data.transforms import transform_for
from raffed.methods.fedic import fedic
from raffed.tables.catalogue import find_item
from raffed.tables.items import SCALES, Cell

Place = tuple[str, str]
TASKS = "CIFAR10 [20,4,5] IF50", "CIFAR100 [20,20,5] IF50"


def cells(name: str) -> dict[Place, Cell]:
    """(row, column) → the cell."""
    return {(cell.row, cell.column): cell for cell in find_item(name).cells}


def test_every_run_of_gldp_s_tables_and_figures_has_the_common_settings() -> None:
    """Part B, common: ResNet-18, SGD 0.01, weight decay 1e-4, batch 32 (Tiny-ImageNet 128), 30 local epochs,
    K = 50 rounds of M exchanges, 10 participants of 100 or 20; docs/papers/gldp.md A10: momentum 0.5, no
    augmentation; §7: the last 10 rounds are surveyed; docs/papers/baselines.md, FEDIC: it has 100, 10, 5
    images a class.
    """
    labelled = {"cifar10": 100, "cifar100": 10, "tiny-imagenet": 5}
    names = (
        "table1",
        "table2",
        "table3",
        "table4-global",
        "table4-selected",
        "fig3",
        "fig4",
        "claims",
        "order",
    )
    runs = [cell.config for name in names for cell in find_item(f"gldp/{name}").cells]
    assert len(runs) > 400
    for run in runs:
        clients, _, stages = (int(part) for part in run.data.split.split(":")[1:4])
        batch = 128 if run.data.dataset == "tiny-imagenet" else 32
        assert (clients, stages) in ((100, 1), (20, 5))
        assert run.local == Local(lr=0.01, momentum=0.5, weight_decay=1e-4, batch_size=batch, epochs=30)
        assert (run.model.name, dict(run.model.args)) == ("resnet18", {})
        assert (run.federation.participants(clients), run.federation.rounds) == (10, 50 * stages)
        assert run.federation.survey == 10 * stages
        assert run.data.transform == "auto"
        assert parse_split(run.data.split).style == "plain"
        assert not transform_for(run.data.dataset, "plain").augments
        if run.method in ("gldp", "fedrep"):
            assert (run.args["body_epochs"], run.args["head_epochs"]) == (10, 20)
        if run.method == "fedic":
            known = {name: p.default for name, p in inspect.signature(fedic).parameters.items()}
            assert {**known, **run.args}["labelled"] == labelled[run.data.dataset]
    assert {run.data.dataset for run in runs if run.method == "fedic"} == set(labelled)


def test_both_orders_of_stages_are_of_table_4_s_runs_and_differ_in_nothing_else() -> None:
    """G-X1: G-T4's settings; FedAvg stands beside its rows. The paper's order is `inner`: nothing is
    printed of the other.
    """
    found, table = cells("gldp/order"), cells("gldp/table4-selected")
    rows, columns = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    assert rows == ["FedAvg", *dict.fromkeys(row for row, _ in table)]
    assert columns == [f"{task} {order}" for task in TASKS for order in ("inner", "outer")]
    assert len(found) == len(rows) * len(columns)
    for (row, column), inner in found.items():
        where, _, order = column.rpartition(" ")
        if order == "inner":
            outer = found[row, f"{where} outer"]
            split = f"{inner.config.data.split}:outer"
            assert outer.config == replace(inner.config, data=replace(inner.config.data, split=split))
            assert not outer.printed
            assert row == "FedAvg" or (inner.config, inner.printed) == (
                table[row, where].config,
                table[row, where].printed,
            )


def scored_visits(config: RunConfig) -> dict[int, list[bool]]:
    """Stage → of each of its rounds, in order, whether the participants' models are scored in it."""
    split, federation = parse_split(config.data.split), config.federation
    none = np.zeros((1, split.stage_count), dtype=np.int64)
    stages = Stages(none, none, "outer" if getattr(split, "outer", False) else "inner")
    found: dict[int, list[bool]] = {stage: [] for stage in range(stages.count)}
    for round in range(federation.rounds):
        asked = (round + 1) % federation.eval_every == 0 or round + 1 > federation.rounds - federation.survey
        found[stages.at(round, federation.rounds)].append(asked)
    return found


@pytest.mark.parametrize("scale", SCALES)
def test_every_stage_is_scored_in_its_last_visits_whatever_the_order(scale: str) -> None:
    """A_sel^(m) is the mean over the last ten visits of stage m, at most half of them, and F of a client's
    last one of each: in order `outer` the last rounds, which alone are surveyed at full scale, are of stage M
    only.
    """
    item = find_item("gldp/order")
    made = [run for cell in item.cells if (run := item.at(cell, scale)) is not None]
    assert {run.data.split.endswith(":outer") for run in made} == {False, True}
    for run in made:
        for visits in scored_visits(run).values():
            assert all(visits[-max(1, min(VISITS, len(visits) // 2)) :])

"""Figure 3 and what is added to the tables (docs/papers/gldp.md §EB, G-X1 and G-X2)."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from raffed.analysis.metrics.stages import VISITS

from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.data.splits import parse_split
from raffed.data.stages import Stages
from raffed.data.transforms import transform_for
from raffed.methods.fedic import fedic
from raffed.methods.gldp import LocalForm
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


DEFAULT = {
    "lam": 0.5,
    "beta": 0.5,
    "lp": "feature_softmax_sample",
    "gp": "class_mean",
    "temperature": 1.0,
    "body_epochs": 10.0,
    "head_epochs": 20.0,
}


def test_settings_are_varied_one_at_a_time_from_the_default_over_the_sheet_s_grids() -> None:
    """G-X2 and docs/papers/gldp.md §9: λ 0, .25, .5, .75, 1; β 0, .1, .5, .9, 1; T .5, 1, 2; §4: LP's forms;
    §5: gp=per_sample; A4: t 1, 5, 10, 14 with t + s = 30.
    """
    found = cells("gldp/settings")
    columns = [f"{task} {metric}" for task in TASKS for metric in ("A_glo", "A_sel")]
    assert list(dict.fromkeys(column for _, column in found)) == columns
    rows = list(dict.fromkeys(row for row, _ in found))
    assert (len(found), rows[0], find_item("gldp/settings").baseline) == (
        len(rows) * 4,
        "GLDP full",
        "GLDP full",
    )
    tried: dict[str, set[object]] = {name: {value} for name, value in DEFAULT.items()}
    for row in rows[1:]:
        args = {**DEFAULT, **found[row, columns[0]].config.args}
        changed = {name for name in DEFAULT if args[name] != DEFAULT[name]}
        assert len(changed) == 1 or changed == {"body_epochs", "head_epochs"}
        assert args["body_epochs"] + args["head_epochs"] == 30
        for name in changed:
            tried[name].add(args[name])
    assert (tried["lam"], tried["beta"], tried["temperature"]) == (
        {0, 0.25, 0.5, 0.75, 1},
        {0, 0.1, 0.5, 0.9, 1},
        {0.5, 1, 2},
    )
    assert (tried["lp"], tried["gp"]) == (set(get_args(LocalForm)) - {"none"}, {"class_mean", "per_sample"})
    assert tried["body_epochs"] == {1, 5, 10, 14}
    measured = {(column.rpartition(" ")[2], cell.measure) for (_, column), cell in found.items()}
    assert measured == {("A_glo", "a_glo"), ("A_sel", "a_sel")}

"""The checker's tables: where numbers are printed, what is absent and why, and how their runs are made."""

from __future__ import annotations

import math

import pytest
import torch
from raffed.analysis.reproduction.printed import printed_value, printed_values
from raffed.reproductions.checker.isic_loss import CLASS_WEIGHTS, weighted_focal
from raffed.reproductions.checker.items import ITEMS

from raffed.data.splits import parse_split
from raffed.methods import build_method
from raffed.tables.items import SCALES, Cell, Item

BY_NAME = {item.name: item for item in ITEMS}


def cell(item: str, row: str, column: str) -> Cell:
    return next(one for one in BY_NAME[item].cells if (one.row, one.column) == (row, column))


EACH = pytest.mark.parametrize("item", ITEMS, ids=[item.name for item in ITEMS])


@EACH
def test_every_place_and_every_witness_is_one_printed_number(item: Item) -> None:
    for one in item.cells:
        places = [one.printed, *one.witnesses]
        for place in (place for place in places if place):
            assert not math.isnan(printed_value("checker", place)), (one.place, place)
        assert one.printed or not one.witnesses


@EACH
def test_every_cell_is_a_run_that_can_be_built_at_every_scale(item: Item) -> None:
    assert not item.missing()
    found = [item.at(one, scale) for one in item.cells for scale in SCALES]
    runs = [run for run in found if run is not None]
    assert len(runs) == len(found)
    for method, args in {repr((run.method, run.args)): (run.method, run.args) for run in runs}.values():
        build_method(method, args)
    for split in {run.data.split for run in runs}:
        parse_split(split)


@pytest.mark.parametrize("name", ["fedvls-mnist", "fedvls-cifar10", "pfllib-fmnist", "niid-mnist"])
def test_every_printed_row_is_a_row_or_absent_with_a_reason(name: str) -> None:
    item = BY_NAME[name]
    assert item.published is not None
    keys = ("paper", "table", "dataset")
    places = {tuple((key, one.printed[key]) for key in keys) for one in item.cells if one.printed}
    frame = printed_values("checker")
    for place in places:
        rows = frame
        for key, value in place:
            rows = rows[rows[key] == value]
        told = {one.printed["method"] for one in item.cells if one.printed} | item.published.absent.keys()
        others = {"FedPHP"} if dict(place)["paper"] == "gpfl" else set()
        assert set(rows["method"]) <= told | others, place


def test_the_focal_loss_is_the_weighted_cross_entropy_at_gamma_0_and_weighs_less_what_is_sure() -> None:
    """Two classes of equal scores: p = 1/2, so −log p = log 2 and (1 − p)² = 1/4."""
    logits, labels = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    mean = (CLASS_WEIGHTS[0] + 2 * CLASS_WEIGHTS[1]) / 3 * math.log(2)
    assert weighted_focal(logits, labels, 0.0).item() == pytest.approx(mean)
    assert weighted_focal(logits, labels).item() == pytest.approx(mean / 4)

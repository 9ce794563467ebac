"""The registry of the papers' tables and figures: cells make runs, and printed numbers are found."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from raffed.analysis.reproduction.printed import printed_value
from raffed.reproductions.checker.isic_loss import CLASS_WEIGHTS, weighted_focal
from raffed.reproductions.checker.items import ITEMS
from raffed.reproductions.pages.packed.files import read_file

from raffed import Data, RunConfig
from raffed.data.splits import parse_split
from raffed.methods import build_method
from raffed.tables.items import MEASURES, SCALES, smoke, stages_of
from tests.papers import items
from tests.params import one_in

ROOT = Path(__file__).parents[2]
EVERY = {**items(), **{item.key: item for item in ITEMS}}
# Bars and curves without numbers, but for two
NOT_PRINTED = {"gldp/fig3": 72 - 2, "gldp/fig4": 96, "mpfedcon/fig6": 0}


def test_every_place_that_a_cell_or_a_witness_names_is_one_printed_number() -> None:
    for key, item in EVERY.items():
        places = [place for cell in item.cells for place in (cell.printed, *cell.witnesses) if place]
        absent = [place for place in places if math.isnan(printed_value(item.paper, place))]
        assert len(absent) == NOT_PRINTED.get(key, 0), (key, absent)
        assert all(cell.printed or not cell.witnesses for cell in item.cells), key
        for average in (one for one in item.averages if one.printed):
            for row in dict.fromkeys(cell.row for cell in item.cells):
                assert 0 < printed_value(item.paper, {**average.printed, "method": row}) < 100, key


@pytest.mark.parametrize("scale", one_in(3, SCALES))
def test_every_cell_makes_a_run(scale: str) -> None:
    """Cells share runs, and each run is made once."""
    made = {
        repr(config): config
        for item in EVERY.values()
        for cell in item.cells
        if (config := item.at(cell, scale))
    }
    for config in made.values():
        build_method(config.method, config.args)
        parse_split(config.data.split)
        assert RunConfig.from_dict(config.as_dict()).identity() == config.identity()


def test_the_checker_s_tables_lack_nothing_at_any_scale() -> None:
    for item in ITEMS:
        assert {item.measure, *(cell.measure or item.measure for cell in item.cells)} <= MEASURES.keys()
        assert all(item.at(cell, scale) for cell in item.cells for scale in SCALES), item.key


def test_a_smoke_run_is_small_whatever_the_cell() -> None:
    for item in items().values():
        for cell in item.cells:
            made = smoke(cell.config)
            assert made.data.dataset == "digits"
            assert made.federation.rounds == 2 * stages_of(made.data) <= 6
            assert made.federation.survey == min(cell.config.federation.survey, made.federation.rounds)
    staged = replace(RunConfig(), data=Data(split="stages:100:20:5:if100"))
    assert smoke(staged).data.split == "stages:5:4:3:if5"
    outer = replace(staged, data=Data(split="stages:100:20:5:if100:outer:n500"))
    assert smoke(outer).data.split == "stages:5:4:3:if5:outer"
    texts = {"p100c10": "p10c5", "incomplete:100": "incomplete:10", "iid:10": "iid:10", "natural": "iid:10"}
    assert {text: smoke(replace(RunConfig(), data=Data(split=text))).data.split for text in texts} == texts


def test_the_focal_loss_is_the_weighted_cross_entropy_at_gamma_0_and_weighs_less_what_is_sure() -> None:
    """Two classes of equal scores: p = 1/2, so −log p = log 2 and (1 − p)² = 1/4."""
    logits, labels = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    mean = (CLASS_WEIGHTS[0] + 2 * CLASS_WEIGHTS[1]) / 3 * math.log(2)
    assert weighted_focal(logits, labels, 0.0).item() == pytest.approx(mean)
    assert weighted_focal(logits, labels).item() == pytest.approx(mean / 4)


RECORDED = {  # records → its items whose cells ask for the recorded runs as they were
    "fedmr": ("fedmr/claims", "fedmr/claims-variance"),
    "gldp": ("gldp/claims", "gldp/order"),
    "map": ("map/table1", "map/table2", "map/fig12"),
    "mpfedcon": ("mpfedcon/claims", "mpfedcon/table2"),
}


@pytest.mark.parametrize("records", RECORDED)
def test_cells_ask_for_the_runs_that_are_recorded_of_them(records: str) -> None:
    """The identity of a run is the hash of all its settings, which were compared with the papers' sheets."""
    index, _ = read_file(ROOT / "reproductions" / "records" / records / "records.parquet")
    files, compared = index["files"], 0
    for name in [one for one in files if one.endswith("item.json")]:
        key, _, scale = name.removesuffix("/item.json").rpartition("/")
        assert key in RECORDED[records]
        asked = {(cell.row, cell.column): items()[key].at(cell, scale) for cell in items()[key].cells}
        for cell in files[name]["cells"]:
            config = asked[cell["row"], cell["column"]]
            assert config is not None
            for run in cell["runs"]:
                about = files[os.path.normpath(f"{key}/{scale}/{run}/run.json")]
                seeded = replace(config, seed=about["config"]["seed"])
                assert seeded.identity() == about["identity"], (key, cell["row"], cell["column"])
                compared += 1
    assert compared >= 50

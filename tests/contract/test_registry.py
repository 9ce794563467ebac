"""The registry of the papers' tables and figures: cells make runs, and claims hold of the printed numbers."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from raffed.analysis.reproduction.printed import printed_value, printed_values
from raffed.reproductions.checker.isic_loss import CLASS_WEIGHTS, weighted_focal
from raffed.reproductions.checker.items import ITEMS
from raffed.reproductions.pages.packed.files import read_file

from raffed import Data, RunConfig
from raffed.data.splits import parse_split
from raffed.methods import build_method
from raffed.tables.catalogue import all_items, find_item
from raffed.tables.items import MEASURES, SCALES, ClaimTerm, Item, smoke, stages_of
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


TABLES = ("map/table1", "map/table2", "map/table3-aggregation", "map/table3-personalization")
KEYS = ("table", "dataset", "network", "method", "metric")


def places(item: Item) -> dict[tuple[str, str], dict[str, str]]:
    """(row, column) → where the paper prints it, averages too."""
    found = {(cell.row, cell.column): dict(cell.printed) for cell in item.cells}
    averages = [(row, one) for one in item.averages for row, _ in found]
    return found | {(row, one.column): {**one.printed, "method": row} for row, one in averages}


def left_side(item: Item, terms: tuple[ClaimTerm, ...]) -> float:
    """The sum of what is printed for the terms; MAP prints another measure than its Table II's in Table I."""
    found = 0.0
    for factor, row, column, *measure in terms:
        table = find_item("map/table1") if measure and item.paper == "map" else item
        found += factor * printed_value(item.paper, places(table)[row, column])
    return found


def test_every_printed_number_stands_beside_a_cell_or_an_average() -> None:
    printed = {tuple(row) for row in printed_values("map")[list(KEYS)].itertuples(index=False)}
    bound = {
        tuple(where[key] for key in KEYS)
        for name in TABLES
        for where in places(find_item(name)).values()
        if "table" in where
    }
    assert len(printed) == 418
    assert bound == printed


# Table I of MAP: 9 (1), 17 + 4 + 8 (2), 1 (5), 4 (6). Table II: 21 + 2 (3), 2 (4), 1 (5), 2 (6), 21 + 22 (7).
# Table III: 11 rows, two lead.
CLAIMS = dict(zip(TABLES, (43, 71, 9, 9), strict=True))
# Of gldp/claims three printed columns, two GLDP above four others, and FedAvg's A_glo above its A_loc
JUDGED = {"gldp/claims": 3 * 2 * 4 + 1}
OTHERS = (
    *("fedmr/table1", "fedmr/table5", "fedmr/table6", "fedmr/table7"),
    *("gldp/claims", "gldp/table1", "gldp/table2", "gldp/table3", "gldp/table4-selected"),
    *("mpfedcon/claims", "mpfedcon/table1", "mpfedcon/table2"),
)
# The seconds of the cost table are rounded up in its claims
OF_THE_CHECKER = [key for key in all_items() if key.startswith("checker/") and key != "checker/pfllib-cost"]


@pytest.mark.parametrize("key", [*CLAIMS, *OTHERS, *OF_THE_CHECKER])
def test_claims_hold_of_the_printed_numbers(key: str) -> None:
    """No run is asked for more than the paper itself says.

    The one claim of MAP that two cells are equal is left out: it prints the best of three settings in each.
    So are those that compare with what is not printed, such as held-out images.
    """
    item, judged = all_items()[key], 0
    assert item.claims or key in OF_THE_CHECKER
    for claim in item.claims:
        left = left_side(item, claim.terms) - claim.minus
        if math.isnan(left) or (item.paper == "map" and claim.within == 0):
            continue
        judged += 1
        most = claim.within
        if most is not None and item.paper not in ("map", "checker"):
            most = min(most, 0.005)
        assert left > 0 if most is None else abs(left) <= most + 1e-9, claim.text
        assert not claim.given or left_side(item, claim.given) > 0, claim.text
    if key not in OF_THE_CHECKER:
        equal = sum(item.paper == "map" and claim.within == 0 for claim in item.claims)
        assert judged + equal == JUDGED.get(key, CLAIMS.get(key, len(item.claims)))


def test_every_cell_of_the_tables_is_run_as_the_sheet_s_section_1_says() -> None:
    """100 clients of random class subsets, 20 a round, 150 rounds; batch 64, momentum 0.9, decay 1e-5, at
    least 5 steps; rate 0.03, on CINIC-10 0.05; epochs 5, 10, 20 and 40. Table III: the same on Dirichlet
    data.
    """
    epochs = {"FaMnist": 5.0, "CIFAR-10": 10.0, "CIFAR-100": 20.0, "CINIC-10": 40.0}
    names = dict(zip(epochs, ("fashion-mnist", "cifar10", "cifar100", "cinic10"), strict=True))
    seen = 0
    for table in TABLES:
        for cell in find_item(table).cells:
            run, data = cell.config, cell.column.split()[0]
            local, federation = run.local, run.federation
            assert run.data.dataset == names[data]
            assert run.data.split == ("incomplete:100" if table in TABLES[:2] else "dirichlet-client:100:1.0")
            assert (federation.rounds, federation.participants(100), federation.weighting) == (150, 20, "")
            assert (local.batch_size, local.momentum, local.weight_decay) == (64, 0.9, 1e-5)
            assert (local.lr, local.epochs) == (0.05 if data == "CINIC-10" else 0.03, epochs[data])
            assert (local.min_steps, local.warmup_rounds, local.drop_last) == (5, 0, False)
            seen += 1
    assert seen == 8 * (21 + 23) + 2 * 3 * 11

"""The registry of the papers' tables and figures: cells make runs, printed numbers are found, what is
missing is computed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from raffed.analysis.reproduction.printed import printed_value

from raffed import Data, RunConfig
from raffed.methods import METHODS, build_method
from raffed.tables.catalogue import chosen, find_item
from raffed.tables.items import SCALES, Item, lacking, smoke, stages_of
from tests.papers import items
from tests.params import one_in

# Bars and curves without numbers, but for two
NOT_PRINTED = {
    "gldp/fig3": 72 - 2,
    "gldp/fig4": 96,
    "mpfedcon/fig6": 0,
}


def test_every_cell_that_names_a_printed_number_names_exactly_one() -> None:
    for key, item in items().items():
        absent = [
            cell
            for cell in item.cells
            if cell.printed and math.isnan(printed_value(item.paper, cell.printed))
        ]
        assert len(absent) == NOT_PRINTED.get(key, 0), key
        for average in (one for one in item.averages if one.printed):
            for row in dict.fromkeys(cell.row for cell in item.cells):
                assert 0 < printed_value(item.paper, {**average.printed, "method": row}) < 100, key


@pytest.mark.parametrize("scale", one_in(3, SCALES))
def test_every_cell_whose_names_are_all_there_makes_a_run(scale: str) -> None:
    """Cells share runs, and each run is made once."""
    made = {
        repr(config): config
        for item in items().values()
        for cell in item.cells
        if (config := item.at(cell, scale))
    }
    for config in made.values():
        if not lacking(config):
            build_method(config.method, config.args)
            assert RunConfig.from_dict(config.as_dict()).identity() == config.identity()


def test_what_is_missing_follows_from_the_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig("fednew", {"mu": 1.0}, Data("imagenet", "rings:5"))
    assert lacking(config) == ["method fednew", "data set imagenet", "split rings"]
    monkeypatch.setitem(METHODS, "fednew", METHODS["fedprox"])
    assert lacking(config) == ["data set imagenet", "split rings"]
    assert lacking(RunConfig("fedprox", {"nu": 1.0})) == ["argument nu of fedprox"]
    assert Item("p", "n", "t", "weight_of_the_moon").missing() == ("measure weight_of_the_moon",)


def test_a_smoke_run_is_small_whatever_the_cell() -> None:
    for item in items().values():
        for cell in item.cells:
            made = smoke(cell.config)
            assert made.data.dataset == "digits"
            assert made.federation.rounds == 2 * stages_of(made.data.split) <= 6
            assert made.federation.survey == min(cell.config.federation.survey, made.federation.rounds)
    staged = replace(RunConfig(), data=Data(split="stages:100:20:5:if100"))
    assert smoke(staged).data.split == "stages:5:4:3:if5"
    outer = replace(staged, data=Data(split="stages:100:20:5:if100:outer:n500"))
    assert smoke(outer).data.split == "stages:5:4:3:if5:outer"
    texts = {"p100c10": "p10c5", "incomplete:100": "incomplete:10", "iid:10": "iid:10", "natural": "iid:10"}
    assert {text: smoke(replace(RunConfig(), data=Data(split=text))).data.split for text in texts} == texts


BY_TASK = ["[20,4,5] A_glo", "[20,4,5] A_loc", "[20,4,5] A_sel", "[20,4,5] drop of A_sel"]


@pytest.mark.parametrize(
    ("item", "texts", "rows", "columns"),
    [
        ("MAP/Table1", ["famnist lenet", "fedavg"], ["FedAvg"], ["FaMnist LeNet"]),
        ("mpfedcon/decisive", ["FedRep,mu = 0.5"], ["FedRep", "MpFedcon, mu = 0.5"], None),
        ("gldp/claims", ["[20,4,5] A_loc", "fedavg,fedrep"], ["FedAvg", "FedRep"], BY_TASK[1:2]),
        ("gldp/claims", ["[20,4,5]"], None, BY_TASK),  # a column with commas in its name
    ],
)
def test_only_takes_what_is_in_a_row_or_a_column(
    item: str, texts: list[str], rows: list[str] | None, columns: list[str] | None
) -> None:
    found = chosen(find_item(item), texts)
    assert rows is None or {cell.row for cell in found} == set(rows)
    assert columns is None or {cell.column for cell in found} == set(columns)

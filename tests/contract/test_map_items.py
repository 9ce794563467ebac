"""MAP's tables and figures: every printed number stands beside a cell or an average, and what is claimed
is what is printed.
"""

from __future__ import annotations

import functools

import pytest
from raffed.analysis.reproduction.printed import printed_value, printed_values
from raffed.reproductions.map.released import PRESETS, SETTINGS

from raffed.config.source import described
from raffed.methods import METHODS
from raffed.methods.fedrs import RestrictedSoftmax
from raffed.runtime.run_method import method_of
from raffed.tables.catalogue import as_released, find_item
from raffed.tables.items import Claim, Item

TABLES = ("map/table1", "map/table2", "map/table3-aggregation", "map/table3-personalization")
KEYS = ("table", "dataset", "network", "method", "metric")


def places(item: Item) -> dict[tuple[str, str], dict[str, str]]:
    """(row, column) → where the paper prints it, averages too."""
    found = {(cell.row, cell.column): dict(cell.printed) for cell in item.cells}
    rows = list(dict.fromkeys(cell.row for cell in item.cells))
    return found | {
        (row, one.column): {**one.printed, "method": row}
        for one in item.averages
        if one.printed
        for row in rows
    }


def test_every_printed_number_stands_beside_a_cell_or_an_average() -> None:
    printed = {tuple(row) for row in printed_values("map")[list(KEYS)].itertuples(index=False)}
    bound = {
        tuple(where[key] for key in KEYS)
        for name in TABLES
        for where in places(find_item(name)).values()
        if where
    }
    assert len(printed) == 418
    assert bound == printed


def left(item: Item, claim: Claim) -> float:
    """The claim's sum of printed numbers; of Table I for what another measure than Table II's is asked
    for.
    """
    where = places(item)
    if any(len(term) > 3 for term in claim.terms):
        where |= {
            (row, column, "accuracy_last"): one
            for (row, column), one in places(find_item("map/table1")).items()
        }  # type: ignore[misc]
    return sum(term[0] * printed_value("map", where[term[1:]]) for term in claim.terms) - claim.minus  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "count"), [("map/table1", 43), ("map/table2", 71), (TABLES[2], 9), (TABLES[3], 9)]
)
def test_the_tables_claims_hold_of_the_printed_numbers(name: str, count: int) -> None:
    """All but that MAP aggregates as FedRS: the paper prints the best of three settings each.

    Table I: 9 (1), 17 + 4 + 8 (2), 1 (5), 4 (6). Table II: 21 + 2 (3), 2 (4), 1 (5), 2 (6), 21 + 22 (7).
    Table III: 11 rows, two lead.
    """
    item = find_item(name)
    assert len(item.claims) == count
    for claim in item.claims:
        value = left(item, claim)
        if claim.within is None:
            assert value > 0, claim.text
        elif claim.within:
            assert abs(value) <= claim.within + 1e-9, claim.text


def test_every_cell_of_the_tables_is_run_as_the_sheet_s_section_1_says() -> None:
    """100 clients of random class subsets, 20 a round, 150 rounds; batch 64, momentum 0.9, decay 1e-5, at
    least 5 steps; rate 0.03, on CINIC-10 0.05; epochs 5, 10, 20 and 40. Table III: the same on Dirichlet
    data.
    """
    epochs = {"FaMnist": 5.0, "CIFAR-10": 10.0, "CIFAR-100": 20.0, "CINIC-10": 40.0}
    names = {
        "FaMnist": "fashion-mnist",
        "CIFAR-10": "cifar10",
        "CIFAR-100": "cifar100",
        "CINIC-10": "cinic10",
    }
    seen = 0
    for table in TABLES:
        for cell in find_item(table).cells:
            run, data = cell.config, cell.column.split()[0]
            assert run.data.dataset == names[data]
            assert run.data.split == ("incomplete:100" if table in TABLES[:2] else "dirichlet-client:100:1.0")
            assert (run.federation.rounds, run.federation.participants(100), run.federation.weighting) == (
                150,
                20,
                "",
            )
            local = run.local
            assert (local.batch_size, local.momentum, local.weight_decay, local.min_steps) == (
                64,
                0.9,
                1e-5,
                5,
            )
            assert (local.lr, local.epochs) == (0.05 if data == "CINIC-10" else 0.03, epochs[data])
            assert (local.warmup_rounds, local.drop_last) == (0, False)
            seen += 1
    assert seen == 8 * (21 + 23) + 2 * 3 * 11


def test_the_released_code_tries_three_settings_of_every_row_that_has_any() -> None:
    """docs/papers/baselines.md, Grids: three settings a cell; FedAvg, FedRep and FLDA are repeated."""
    item = as_released(find_item("map/table2"))
    assert (item.key, len(item.cells)) == ("map/table2-released", 8 * (20 * 3 + 3))
    runs = {cell.place: cell.config.identity() for cell in item.cells}
    assert len(set(runs.values())) == len(runs) == len(item.cells)
    one = {cell.row for cell in item.cells if cell.config.method not in SETTINGS}
    assert one == {"FedAvg", "FedRep", "FLDA"}


def test_released_runs_have_the_variants_weights_and_rates_of_the_released_code() -> None:
    known = find_item("map/table1").cells + find_item("map/table2").cells
    assert {cell.config.method for cell in known if "preset" in _takes(cell.config.method)} == set(PRESETS)
    for cell in as_released(find_item("map/table2")).cells:
        config = cell.config
        by = method_of(config).mean.by  # also: every argument is taken
        assert by == ("samples" if cell.row in ("FedRS", "FedPHP", "MAP") else "clients"), cell.place
        # These two know no warm-up, and nothing clips them in that code
        own_rates = cell.row in (
            "pFedMe",
            "PerFedAvg",
        )
        if not own_rates:
            assert [config.local.rate(t) / config.local.lr for t in (0, 3, 4, 149)] == pytest.approx(
                [0.2, 0.8, 1.0, 1.0]
            )
        assert config.local.clip_norm == (None if own_rates else 100.0)
        assert config.args.get("preset") == ("authors" if config.method in PRESETS else None)
        assert config.data.transform == "map-authors"
        assert config.local.batch_size == (32 if config.data.dataset == "fashion-mnist" else 64)
    heads = {(cell.row, method_of(cell.config).head) for cell in as_released(find_item("map/table1")).cells}
    modes = {row: head.mode for row, head in heads if isinstance(head, RestrictedSoftmax)}
    assert modes == {
        "FedRS": "counts",
        "DittoRS": "counts",
        **dict.fromkeys(("MAP", "ScaRS", "ScaMAP"), "uniform_bug"),
    }


@functools.cache
def _takes(method: str) -> set[str]:
    info = METHODS[method]
    return {one.name for one in described(f"raffed.methods.{info.module}", info.factory).arguments}

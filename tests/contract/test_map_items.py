"""MAP's tables and figures: every printed number stands beside a cell or an average, and what is claimed
is what is printed.
"""

from __future__ import annotations

import functools
from typing import Any

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


def test_figure_12_is_run_as_the_sheet_s_section_6_says() -> None:
    """100 rounds on FEMNIST's writers, Q in 0.01, 0.1, E in 2, 5; batch 10, rate 0.004; MAP observes
    classes from 2 on.
    """
    item = find_item("map/fig12")
    seen = set()
    for cell in item.cells:
        run = cell.config
        assert (run.data.dataset, run.data.split, run.model.name) == ("femnist", "natural", "femnist_cnn")
        assert (run.local.batch_size, run.local.lr, run.local.momentum, run.local.weight_decay) == (
            10,
            0.004,
            0.9,
            1e-5,
        )
        assert run.federation.rounds == 100
        assert run.args == ({"n_min": 2} if cell.row == "MAP" else {})
        seen.add((cell.row, run.federation.participation, run.local.epochs))
    assert seen == {
        (row, q, e)
        for row in ("FedAvg", "Scaffold", "FedROD", "MAP")
        for q in (0.01, 0.1)
        for e in (2.0, 5.0)
    }


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


@pytest.mark.parametrize(
    ("row", "names", "wanted"),
    [
        ("FedProx", "mu", [1e-4, 1e-3, 1e-2]),
        ("FedNova", "gmf mu", [(0.9, 1e-4), (0.5, 1e-3), (0.3, 1e-2)]),
        ("MOON", "mu", [1e-3, 1e-2, 1e-1]),
        ("FedDyn", "alpha", [1e-3, 1e-2, 1e-1]),
        ("FedMMD", "lam", [1e-3, 1e-2, 1e-1]),
        ("Scaffold", "server_lr", [0.5, 0.75, 0.9]),
        ("FedOpt", "server_lr", [1.0, 0.1, 0.05]),
        ("FedDF", "server_lr server_steps", [(1e-2, 200), (1e-3, 300), (1e-4, 500)]),
        ("FedAwS", "nu server_steps server_lr", [(0.9, 20, 1.0), (0.8, 30, 0.1), (0.5, 50, 0.01)]),
        (
            "pFedMe",
            "lam outer_lr inner_steps personal_lr",
            [(0.1, 0.9, 5, 0.03), (0.01, 0.75, 10, 0.03), (0.001, 0.5, 15, 0.03)],
        ),
        ("PerFedAvg", "outer_lr inner_lr", [(0.1, 0.03), (0.05, 0.03), (0.01, 0.03)]),
        ("FedProto", "lam", [0.1, 0.01, 0.001]),
        ("Ditto", "lam", [0.1, 0.01, 0.001]),
        ("FedROD", "gamma", [1.0, 0.5, 0.25]),
        ("FedPHP", "transfer lam", [("kd", 0.1), ("mmd", 0.1), ("mmd", 0.01)]),
        ("FedRS", "alpha", [0.9, 0.5, 0.1]),
        ("ScaRS", "alpha server_lr", [(0.1, 0.5), (0.9, 0.75), (0.5, 0.9)]),
        ("DittoRS", "alpha lam", [(0.1, 0.1), (0.9, 0.01), (0.5, 0.001)]),
        ("MAP", "transfer lam alpha", [("kd", 0.1, 0.5), ("kd", 0.01, 0.9), ("mmd", 0.01, 0.5)]),
        (
            "ScaMAP",
            "transfer lam alpha server_lr",
            [("kd", 0.1, 0.5, 0.5), ("kd", 0.01, 0.9, 0.9), ("mmd", 0.01, 0.5, 0.5)],
        ),
    ],
)
def test_the_settings_are_those_that_the_sheets_give(row: str, names: str, wanted: list[Any]) -> None:
    """docs/papers/map.md §2.4, §3.6, §4, §5 and §1.5; docs/papers/baselines.md and baselines-personal.md,
    the section of each.
    """
    cells = [
        c for c in as_released(find_item("map/table2")).cells if (c.row, c.column) == (row, "FaMnist MLPNet")
    ]
    found = [tuple(cell.config.args[name] for name in names.split()) for cell in cells]
    assert found == [one if isinstance(one, tuple) else (one,) for one in wanted]


@functools.cache
def _takes(method: str) -> set[str]:
    info = METHODS[method]
    return {one.name for one in described(f"raffed.methods.{info.module}", info.factory).arguments}

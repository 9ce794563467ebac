"""MAP's tables and figures: every printed number stands beside a cell or an average, and what is claimed
is what is printed.
"""

from __future__ import annotations

import math

import pytest
from raffed.analysis.reproduction.printed import printed_value, printed_values

from raffed.tables.catalogue import all_items, find_item
from raffed.tables.items import Claim, ClaimTerm, Item
from tests.papers import items

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


# Claims of other papers hold of the numbers that these print: no run is asked for more than the paper says.

OF_FEDMR = ("fedmr/table1", "fedmr/table5", "fedmr/table6", "fedmr/table7")
OF_GLDP = ("gldp/claims", "gldp/table1", "gldp/table2", "gldp/table3", "gldp/table4-selected")
PRINTED = (*OF_FEDMR, *OF_GLDP, "mpfedcon/claims", "mpfedcon/table1", "mpfedcon/table2")
SIZES = dict(zip(OF_FEDMR, ((85, 53), (5, 3), (13, 7), (19, 19)), strict=True))  # at full and at proxy scale
SIZES |= {"gldp/fig4": (6, 0), "gldp/table4-selected": (1, 0), "mpfedcon/fig9": (2, 2)}


def value(item: Item, term: ClaimTerm) -> float:
    """What is printed for a term's cell, or for its row's average."""
    _, row, column, *_ = term
    places = {(cell.row, cell.column): cell.printed for cell in item.cells}
    places |= {
        (cell.row, one.column): {**one.printed, "method": cell.row}
        for one in item.averages
        for cell in item.cells
    }
    return printed_value(item.paper, places[row, column])


def left_side(item: Item, terms: tuple[ClaimTerm, ...]) -> float:
    return sum(term[0] * value(item, term) for term in terms)


@pytest.mark.parametrize("key", PRINTED)
def test_claims_hold_of_the_printed_numbers(key: str) -> None:
    item = items()[key]
    assert item.claims
    judged = 0
    for claim in item.claims:
        left = left_side(item, claim.terms) - claim.minus
        if key == "gldp/claims" and math.isnan(left):
            continue  # of A_sel with these methods nothing is printed, nor of A_glo with one stage
        judged += 1
        assert left > 0 if claim.within is None else abs(left) < min(claim.within, 0.005), claim.text
        assert not claim.given or left_side(item, claim.given) > 0, claim.text
    # of gldp/claims those of three printed columns, two GLDP above four others, and FedAvg's A_glo above its
    # A_loc
    assert judged == (3 * 2 * 4 + 1 if key == "gldp/claims" else len(item.claims))


# The seconds of the cost table are rounded up in its claims
OF_THE_CHECKER = [key for key in all_items() if key.startswith("checker/") and key != "checker/pfllib-cost"]


@pytest.mark.parametrize("key", OF_THE_CHECKER)
def test_claims_of_the_checker_hold_of_the_numbers_of_their_sources(key: str) -> None:
    """Those that compare with what is not printed, such as held-out images, are left out."""
    item = all_items()[key]
    for claim in item.claims:
        left = left_side(item, claim.terms) - claim.minus
        holds = left > 0 if claim.within is None else abs(left) <= claim.within + 1e-9
        assert holds or math.isnan(left), claim.text

"""What tables claim holds of the numbers that the papers print, and each number of MAP's has a cell."""

from __future__ import annotations

import math

import pytest
from raffed.analysis.reproduction.printed import printed_value, printed_values

from raffed.tables.catalogue import all_items, find_item
from raffed.tables.items import ClaimTerm, Item

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

"""Claims about a table hold of the numbers that the paper itself prints there: no run is asked for more than
the paper says. A table's margin is its print's own spread or 1 point, at most half of its largest gain.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from raffed.analysis.reproduction.printed import printed_spread, printed_value

from raffed.tables.catalogue import all_items
from raffed.tables.item_file import write_item
from raffed.tables.items import Cell, ClaimTerm, Item
from raffed.tables.planner import planned_runs
from tests.papers import items

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


@pytest.mark.parametrize("key", SIZES)
def test_the_claims_of_the_columns_that_a_scale_has_are_in_the_item_s_file(key: str, tmp_path: Path) -> None:
    item = items()[key]
    for scale, wanted in zip(("full", "proxy"), SIZES[key], strict=True):
        about = json.loads(
            write_item(item, scale, tmp_path, planned_runs(item, scale, tmp_path, [], 1)).read_text()
        )
        assert len({claim["text"] for claim in about["claims"]}) == len(about["claims"]) == wanted
    assert not {"SVHN", "CIFAR100"} & {
        word for claim in about["claims"] for term in claim["terms"] for word in term[2].split()
    }


NO_SPREAD = ("map", "checker/fednova-cifar10")  # ± is over settings, and half an interval of unknown seeds


def targets(item: Item) -> dict[tuple[str, str], tuple[Cell, float]]:
    """Map (row, column) to the cells whose printed number is to be reproduced, with that number."""
    found = {(cell.row, cell.column): (cell, printed_value(item.paper, cell.printed)) for cell in item.cells}
    return {key: pair for key, pair in found.items() if pair[0].target and not math.isnan(pair[1])}


def spread(item: Item) -> float:
    """Return √(mean s²) of the deviations over runs that are printed; 1 point without any."""
    if item.paper in NO_SPREAD or item.key in NO_SPREAD:
        return 1.0
    told = (printed_spread(item.paper, cell.printed) for cell, _ in targets(item).values())
    known = [s for s in told if not math.isnan(s)]
    return math.sqrt(sum(s * s for s in known) / len(known)) if known else 1.0

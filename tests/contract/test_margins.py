"""A table's margin is what its print allows: its own spread or 1 point, at most half of its largest gain."""

from __future__ import annotations

import math

import pytest
from raffed.analysis.reproduction.printed import printed_spread, printed_value

from raffed.tables.catalogue import all_items
from raffed.tables.items import Cell, Item

NO_SPREAD = ("map", "checker/fednova-cifar10")  # ± is over settings, and half an interval of unknown seeds
COUNTED = ("fedmr/table3", "fedmr/table4", "fedmr/table7", "mpfedcon/table3")  # not points


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


def largest_gain(item: Item) -> float:
    """Return the largest printed gain over the baseline.

    Where the baseline leads, or fewer is better, it is the largest difference.
    """
    numbers = {key: number for key, (_, number) in targets(item).items()}
    gains = [
        number - numbers[item.baseline, column]
        for (row, column), number in numbers.items()
        if row != item.baseline and (item.baseline, column) in numbers
    ]
    either = max(gains, default=0.0) < 0.01 or item.key in COUNTED
    return round(max((abs(gain) if either else gain for gain in gains), default=math.inf), 9)


JUDGED = {key: item for key, item in all_items().items() if targets(item)}


@pytest.mark.parametrize("key", JUDGED)
def test_a_margin_is_the_spread_of_the_print_or_1_point_and_at_most_half_of_the_largest_gain(
    key: str,
) -> None:
    item = JUDGED[key]
    half = largest_gain(item) / 2
    assert 0 < item.margin <= half
    if key not in COUNTED:
        assert item.margin == pytest.approx(min(spread(item), half), abs=0.0101)

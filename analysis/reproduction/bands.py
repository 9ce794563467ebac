"""Judge numbers that other people printed by a band around them, with the spread of both sides.

With a printed m ± s of n runs and our r ± t of k runs, the band is b = max(b₀, 2 √(s²/n + t²/k)). The
number agrees if |r − m| ≤ b, differs if |r − m| > 2b, and is open in between. Where several sources print the
number, their range widened by b₀ stands for m. Two of our runs are too few for a verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..runs.files import JsonObject
from ..runs.load import Runs
from ..table import TextTable
from .absent import DIVERGED, lost_runs
from .cell_values import cell_values
from .item_runs import Reproduction
from .printed import printed_spread, printed_value
from .table_order import places_in_order

LEAST_RUNS = 3  # of ours behind a verdict
UNKNOWN_SPREAD = 0.5  # points, where no deviation or 0.00 is printed


class Room(NamedTuple):
    """What is printed for a cell, and how far from it ours may lie.

    Attributes:
        low: the lowest printed number.
        high: the highest printed number; the same if only one source prints it.
        spread: the printed deviation s.
        repeats: number n of runs behind the printed number.
        least: the noise b₀ that is assumed at least.
    """

    low: float
    high: float
    spread: float
    repeats: int
    least: float

    def distance(self, ours: float) -> float:
        """Return the signed distance from the printed number; 0 within the widened range of several."""
        if self.low == self.high:
            return ours - self.low
        low, high = self.low - self.least, self.high + self.least
        return min(ours - low, 0.0) + max(ours - high, 0.0)

    def width(self, ours: Sequence[float]) -> float:
        """Return the band b for our values, one for each seed."""
        deviation = statistics.stdev(ours) if len(ours) > 1 else 0.0
        error = self.spread**2 / self.repeats + deviation**2 / len(ours)
        return max(self.least, 2 * math.sqrt(error))

    def zone(self, ours: Sequence[float]) -> tuple[float, float]:
        """Return between which numbers the mean of our values agrees."""
        wide = self.width(ours) + (0.0 if self.low == self.high else self.least)
        return self.low - wide, self.high + wide

    def verdict(self, ours: Sequence[float]) -> str:
        """Return the verdict on our values."""
        if not ours:
            return "not run"
        if len(ours) < LEAST_RUNS:
            return "too few seeds"
        off, width = abs(self.distance(sum(ours) / len(ours))), self.width(ours)
        return "agrees" if off <= width else ("differs" if off > 2 * width else "open")


def room_of(item: Reproduction, cell: JsonObject) -> Room | None:
    """Return the room of a cell; None if it is judged by the item's tolerance, or nothing is printed."""
    band = cell.get("band")
    if not band:
        return None
    paper = item.about["paper"]
    places: list[Mapping[str, str]] = [cell["printed"], *band["witnesses"]]
    values = [value for place in places if not math.isnan(value := printed_value(paper, place))]
    if not values:
        return None
    spreads = [_spread(printed_spread(paper, place)) for place in places]
    spread = max(spreads) if band["spread"] is None else float(band["spread"])
    return Room(min(values), max(values), spread, int(band["repeats"]), float(band["least"]))


def _spread(printed: float) -> float:
    return UNKNOWN_SPREAD if math.isnan(printed) or printed == 0 else printed


def rooms(item: Reproduction) -> dict[tuple[str, str], Room]:
    """Map (row, column) to the room of the cells that have one."""
    found = {(cell["row"], cell["column"]): room_of(item, cell) for cell in item.about["cells"]}
    return {place: room for place, room in found.items() if room is not None}


def band_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return what the verdicts rest on: printed, ours, the distance and the band; None without bands."""
    lines, judged = [], rooms(item)
    for place in places_in_order(item, judged):
        room = judged[place]
        ours = list(cell_values(item, place, runs).values())
        if ours:
            word = DIVERGED if lost_runs(item, place) else room.verdict(ours)
            lines.append([*place, *_shown(room, ours), word])
    titles = [
        "Method",
        "Column",
        "Printed",
        "± of it",
        "Ours",
        "± of ours",
        "Seeds",
        "Distance",
        "Band",
        "Verdict",
    ]
    return TextTable(titles, lines, frozenset({"Method", "Column", "Verdict"})) if lines else None


def _shown(room: Room, ours: Sequence[float]) -> list[str]:
    mean = sum(ours) / len(ours)
    deviation = f"{statistics.stdev(ours):.2f}" if len(ours) > 1 else "–"
    printed = f"{room.low:g}" if room.low == room.high else f"{room.low:g} to {room.high:g}"
    distance = f"{room.distance(mean):+.2f}".replace("-", "−")
    return [
        printed,
        f"{room.spread:g}",
        f"{mean:.2f}",
        deviation,
        str(len(ours)),
        distance,
        f"{room.width(ours):.2f}",
    ]


def published_tables(item: Reproduction, runs: Runs) -> dict[str, TextTable]:
    """Return the tables that stand beside one that other people printed: bands, defects and absent rows."""
    about = item.about.get("published")
    if not about:
        return {}
    judged = band_table(item, runs) if item.about["scale"] == "full" else None
    facts = [[what, str(about[key])] for key, what in FACTS.items()]
    facts += [["Not to be had here", str(one)] for one in about["lacks"]]
    defects = [[str(one)] for one in about["defects"]]
    absent = [[str(row), str(why)] for row, why in about["absent"].items()]
    tables = {
        "How the printed numbers are judged": judged,
        "What is printed": TextTable(["What", "Stated"], facts, frozenset({"What", "Stated"})),
        "What is wrong with the printed table": TextTable(["Defect"], defects, frozenset({"Defect"})),
        "Rows that are absent": TextTable(["Row", "Why"], absent, frozenset({"Row", "Why"})),
    }
    return {title: table for title, table in tables.items() if table is not None and table.rows}


FACTS = {"source": "Source", "protocol": "Protocol", "needs": "Needs", "cost": "Cost"}

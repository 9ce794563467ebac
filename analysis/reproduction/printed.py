"""Read the numbers that the papers print: analysis/printed/*.csv."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ..metrics.equivalence import PrintedNumber
from ..runs.load import section
from .item_runs import Place, Reproduction, partial_averages, parts_of

PRINTED = {
    "fedmr": "fedmr.csv",
    "map": "map.csv",
    "gldp": "gldp-mpfedcon.csv",
    "mpfedcon": "gldp-mpfedcon.csv",
    "checker": "independent.csv",
}


# What the column `paper` says; the checker's places name it themselves, because there are many sources
NAMES = {"fedmr": "FedMR-TMLR2023", "map": "map", "gldp": "GLDP", "mpfedcon": "MpFedcon"}


OWN_NUMBER = "value"  # the only key of a printed number in a table of one's own


@functools.lru_cache(maxsize=4)
def printed_values(paper: str) -> pd.DataFrame:
    """Return the paper's numbers as text, one row for each value. A table of one's own has none here."""
    name = PRINTED.get(paper)
    if name is None:
        return pd.DataFrame(columns=["paper", "metric", "method", "value"], dtype=str)
    frame = pd.read_csv(Path(__file__).parents[1] / "printed" / name, dtype=str, keep_default_na=False)
    return frame[frame["paper"] == NAMES[paper]] if paper in NAMES else frame


def printed_value(paper: str, where: Mapping[str, str]) -> float:
    """Return the one number that the paper prints for these values of the columns.

    The result is NaN if there is none, if there are several, or if it is not a number. A table of one's own
    holds its numbers itself.
    """
    if tuple(where) == (OWN_NUMBER,):
        return _number(where[OWN_NUMBER])
    return _by_place(paper, tuple(where)).get(tuple(where.values()), math.nan) if where else math.nan


def printed_numbers(item: Reproduction) -> dict[Place, PrintedNumber]:
    """Map each place to what is printed there, with the number of runs behind it if the item knows it.

    If the item has only some columns of a printed average, its number is the mean of theirs, as ours is.
    """
    paper, known = item.about["paper"], section(item.about, "published").get("repeats", {})
    numbers = dict[Place, PrintedNumber]()
    for place, where in printed_places(item).items():
        count = int(known.get(where.get("paper"), 0))
        numbers[place] = PrintedNumber(printed_value(paper, where), printed_spread(paper, where), count)
    partial = partial_averages(item)
    for place in [place for place in numbers if place[1] in partial and not math.isnan(numbers[place].value)]:
        parts = [numbers.get(part, PrintedNumber()).value for part in parts_of(item, place)]
        numbers[place] = PrintedNumber(sum(parts) / len(parts))
    return numbers


def printed_spread(paper: str, where: Mapping[str, str]) -> float:
    """Return the deviation that is printed beside the number of a place; NaN if there is none."""
    if tuple(where) == (OWN_NUMBER,) or "std" not in printed_values(paper):
        return math.nan
    return _by_place(paper, tuple(where), "std").get(tuple(where.values()), math.nan) if where else math.nan


@functools.lru_cache(maxsize=64)
def _by_place(paper: str, columns: tuple[str, ...], of: str = "value") -> dict[tuple[str, ...], float]:
    """Map the values of these columns to the number. Filtering the table for each number would take long."""
    frame = printed_values(paper)
    numbers: dict[tuple[str, ...], float] = {}
    for *place, value in zip(*(frame[name] for name in (*columns, of)), strict=True):
        key = tuple(place)
        numbers[key] = math.nan if key in numbers else _number(value)
    return numbers


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@functools.lru_cache(maxsize=1024)
def printed_column(paper: str, place: frozenset[tuple[str, str]]) -> dict[str, float]:
    """Map each method to the number that is printed for it in this place, for the methods that have one."""
    frame = printed_values(paper)
    for name, value in place:
        frame = frame[frame[name] == value]
    pairs = zip(frame["method"], map(_number, frame["value"]), strict=True)
    return {str(row): number for row, number in pairs if not math.isnan(number)}


def printed_places(item: Reproduction) -> dict[Place, Mapping[str, str]]:
    """Map (row, column) to the place where the paper prints the cell or the row's average.

    Others are empty.
    """
    places = {(cell["row"], cell["column"]): cell["printed"] for cell in item.about["cells"]}
    rows = dict.fromkeys(row for row, _ in places)
    for average in item.about["averages"]:
        where = average["printed"]
        places |= {(row, average["column"]): {**where, "method": row} if where else {} for row in rows}
    return places

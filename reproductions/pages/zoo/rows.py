"""The numbers behind the page: scores of every row, their differences to a reference, and what it sends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from raffed.analysis.metrics.compare import LEVEL, Paired, paired
from raffed.analysis.metrics.holm import benjamini_hochberg, holm
from raffed.analysis.metrics.intervals import LEAST_SEEDS, detectable, t_quantile
from raffed.analysis.metrics.measures import measures
from raffed.analysis.reproduction.absent import lost_runs
from raffed.analysis.reproduction.item_runs import Reproduction, measure_of
from raffed.analysis.runs.files import JsonObject
from raffed.analysis.runs.load import Runs, section

DIVERGED, TOO_FEW = "diverged", "too few seeds"  # why a row has no verdict
Scores = Mapping[str, Mapping[int, float]]  # row → seed → fraction


class Compared(NamedTuple):
    """A row against a reference in a column.

    Attributes:
        row: its name.
        difference: the difference over common seeds.
        p: the p-value after Holm's correction.
        p_found: the p-value after Benjamini and Hochberg's.
        lost: the number of seeds with which training of one of the two diverged.
    """

    row: str
    difference: Paired
    p: float
    p_found: float = math.nan
    lost: int = 0

    @property
    def verdict(self) -> str:
        """Return "above", "below", "equal" in every seed, "not separated", or why nothing can be said.

        Where some seeds of one of the two diverged there is no verdict: those that are left may be its good
        ones. Differences that are the same in all seeds have no interval and separate nothing.
        """
        if self.lost:
            return DIVERGED
        if self.difference.mean == 0 and self.difference.half == 0:
            return "equal"
        if self.difference.seeds < LEAST_SEEDS:
            return TOO_FEW
        if math.isnan(self.p) or self.p >= LEVEL:
            return "not separated"
        return "above" if self.difference.mean > 0 else "below"


class RowCost(NamedTuple):
    """Medians over the runs of a row in a column: megabytes of a round to the server and back."""

    up: float
    down: float


def columns(item: Reproduction) -> list[str]:
    """Return the columns of an item in their order."""
    return list(dict.fromkeys(str(cell["column"]) for cell in item.about["cells"]))


def scores(item: Reproduction, runs: Runs, column: str) -> dict[str, dict[int, float]]:
    """Return row → seed → the measure of the row's run, a fraction. Rows without runs are left out."""
    by_row, seeds = {}, runs.runs["seed"]
    for cell in item.about["cells"]:
        if cell["column"] == column:
            values = measures(runs)[measure_of(item, cell)]
            kept = {int(seeds[name]): float(values[name]) for name in run_names(item, cell, runs)}
            by_row[str(cell["row"])] = {seed: value for seed, value in kept.items() if not math.isnan(value)}
    return {row: by_seed for row, by_seed in by_row.items() if by_seed}


def run_names(item: Reproduction, cell: JsonObject, runs: Runs) -> list[str]:
    """Return the loaded runs behind a cell.

    Unlike a paper's table, none is left out for other data: a remark says what a method's server has.
    """
    wanted = {str((item.folder / run).resolve()) for run in cell["runs"]}
    places = {str(Path(str(folder)).resolve()): str(name) for name, folder in runs.runs["folder"].items()}
    return [places[folder] for folder in sorted(wanted) if folder in places]


def against(
    by_row: Scores, reference: str, lost: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Compared]:
    """Return every other row against one, by paired t-tests with two corrections; the best first.

    Args:
        by_row: Row → seed → the measure.
        reference: The row with which the others are compared.
        lost: Row → number of seeds with which training diverged. Nothing is tested with such rows.
    """
    if reference not in by_row:
        return {}
    others = sorted((row for row in by_row if row != reference), key=lambda row: -mean(by_row[row]))
    differences = {row: paired(by_row[row], by_row[reference]) for row in others}
    lost = {row: lost.get(row, 0) + lost.get(reference, 0) for row in others}
    tests = [
        gap.p_t if gap.seeds >= LEAST_SEEDS and not lost[row] else math.nan
        for row, gap in differences.items()
    ]
    adjusted = zip(differences.items(), holm(tests), benjamini_hochberg(tests), strict=True)
    return {row: Compared(row, gap, p, p_found, lost[row]) for (row, gap), p, p_found in adjusted}


def seen(compared: Mapping[str, Compared]) -> list[float]:
    """Return the difference, in points, that each row's seeds see with a probability of 80 %, at 5 %.

    The standard deviation of a row's paired differences is that of its interval, t·s/√n.
    """
    points = []
    for comparison in compared.values():
        n, half = comparison.difference.seeds, comparison.difference.half
        if n >= LEAST_SEEDS and half > 0 and not comparison.lost:
            points.append(detectable(half * math.sqrt(n) / t_quantile(n - 1), n))
    return sorted(points)


def diverged(item: Reproduction, column: str) -> dict[str, int]:
    """Return row → number of final runs in a column with which training diverged."""
    rows = [str(cell["row"]) for cell in item.about["cells"] if cell["column"] == column]
    return {row: len(lost) for row in rows if (lost := lost_runs(item, (row, column)))}


def mean(values: Mapping[int, float]) -> float:
    """Return the mean over seeds."""
    return sum(values.values()) / len(values)


def cost(item: Reproduction, runs: Runs, column: str) -> dict[str, RowCost]:
    """Return row → cost of its runs in a column."""
    costs = {}
    for cell in item.about["cells"]:
        names = run_names(item, cell, runs) if cell["column"] == column else []
        if names:
            rows = measures(runs).loc[names, ["mb_up", "mb_down"]].median()
            costs[str(cell["row"])] = RowCost(*(float(megabytes) for megabytes in rows))
    return costs


def tried(item: Reproduction) -> dict[tuple[str, str], JsonObject]:
    """Return (row, column) → the record of its trials."""
    rows: Sequence[JsonObject] = section(item.about, "search").get("rows", [])
    return {(str(row["row"]), str(row["column"])): row for row in rows}


def trial_rounds(item: Reproduction) -> int:
    """Return the rounds of all trials that have ended. One that goes on is not counted twice."""
    total = 0
    for row in section(item.about, "search").get("rows", []):
        before: dict[tuple[str, int], int] = {}
        for trial in row["trials"]:
            if "rounds" in trial and trial["state"] in ("finished", "diverged"):
                key = str(trial["setting"]), int(trial["seed"])
                total += int(trial["rounds"]) - before.get(key, 0)
                before[key] = int(trial["rounds"])
    return total

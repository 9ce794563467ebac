"""Compare the differences that a paper prints with ours.

They are gains over a baseline, distances to the best other method, and additional costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..runs.load import Runs
from ..table import TextTable, without_blank
from .cell_values import values_of
from .item_runs import Place, Reproduction, partial_averages, parts_of
from .numbers import shown
from .printed import printed_column, printed_places, printed_value, printed_values

Scores = Mapping[str, Mapping[int, float]]  # of a column: row → seed → value


class Difference(NamedTuple):
    """A difference for every seed that all its numbers have. `to` names the other method if it can vary."""

    values: list[float]
    to: str = ""


def gain(scores: Scores, row: str, baseline: str) -> Difference:
    """Return a row's value minus the baseline's."""
    left, other = scores.get(row, {}), scores.get(baseline, {})
    return Difference([left[seed] - other[seed] for seed in sorted(left.keys() & other.keys())])


def to_best_other(scores: Scores, row: str, baseline: str) -> Difference:
    """Return a row's value minus that of the best other row without the baseline, as in FedMR's Δ.

    The best row is the one with the highest mean over seeds. Taking the best of each seed would give a number
    that no single method reaches.
    """
    rivals = [name for name in scores if name not in (row, baseline)]
    others = {name: scores[name] for name in rivals if scores[name]}
    seeds = sorted(set.intersection(set(scores.get(row, {})), *map(set, others.values()))) if others else []
    if not seeds:
        return Difference([])
    best = max(others, key=lambda name: sum(others[name][seed] for seed in seeds))
    of = "" if len(others) == len(rivals) else f" ({len(others)} of {len(rivals)} ran)"
    return Difference([scores[row][seed] - others[best][seed] for seed in seeds], best + of)


def added(scores: Scores, row: str, baseline: str) -> Difference:
    """Return by how many per cent a row's value exceeds the baseline's."""
    left, other = scores.get(row, {}), scores.get(baseline, {})
    return Difference([100 * (left[seed] / other[seed] - 1) for seed in sorted(left.keys() & other.keys())])


class DifferenceKind(NamedTuple):
    """A kind of printed difference: its meaning in words, and the function that computes it."""

    text: str
    digits: int
    of: Callable[[Scores, str, str], Difference]


KINDS = {
    "printed_gain_over_fedavg_pp": DifferenceKind("gain over {}", 2, gain),
    "printed_delta_to_best_baseline_pp": DifferenceKind("Δ to the best other but {}", 2, to_best_other),
    "printed_additional_cost_pct": DifferenceKind("cost added to {}, %", 3, added),
}


def difference_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return a table of each difference: as printed, as computed from the printed numbers, and ours.

    Ours is paired by seed, as mean ± 95 % interval. The second column is there because papers contain errors:
    FedMR's gain in CIFAR-10 P10C2 is printed as 2.23, but its own accuracies give 6.05. Return None if the
    paper prints none.
    """
    baseline, places, lines = item.about["baseline"], printed_places(item), []
    printed: dict[str, Scores] = {}
    ours: dict[str, Scores] = {}
    for (row, column, metric), value in _told(item, places).items():
        if column not in printed:
            printed[column] = _printed_scores(item, places, row, column)
            ours[column] = {name: values_of(item, (name, column), runs) for name in printed[column]}
        kind = KINDS[metric]
        told, scored = (kind.of(scores[column], row, baseline) for scores in (printed, ours))
        numbers = (shown(values, kind.digits, sign=True) for values in ([value], told.values, scored.values))
        lines.append(
            [
                row,
                column,
                kind.text.format(baseline),
                *numbers,
                str(len(scored.values)),
                told.to or "–",
                scored.to or "–",
            ]
        )
    if not lines:
        return None
    best = "Best other: paper", "Best other: ours"
    titles = ["Method", "Column", "What", "Paper", "From its numbers", "Ours", "Seeds", *best]
    return without_blank(TextTable(titles, lines, frozenset({"Method", "Column", "What", *best})), best)


def _told(item: Reproduction, places: Mapping[Place, Mapping[str, str]]) -> dict[tuple[str, str, str], float]:
    """Map (row, column, metric) to what the paper prints, if it prints anything.

    Of averages, only those over all columns of the average count.
    """
    paper, partial = item.about["paper"], partial_averages(item)
    frame = printed_values(paper)
    rows = set(frame.loc[frame["metric"].isin(list(KINDS)), "method"])
    told: dict[tuple[str, str, str], float] = {}
    for (row, column), where in places.items():
        if where.get("method") in rows and column not in partial:
            values = {metric: printed_value(paper, {**where, "metric": metric}) for metric in KINDS}
            told |= {
                (row, column, metric): value for metric, value in values.items() if not math.isnan(value)
            }
    return told


def _printed_scores(
    item: Reproduction, places: Mapping[Place, Mapping[str, str]], row: str, column: str
) -> Scores:
    """Map each row to {0: value} for all that is printed in a column, also for methods that have no cell.

    `row` is a row with a cell. The value of an average is computed from its columns, not taken from the
    print.
    """
    parts = parts_of(item, (row, column))
    columns = [_printed_column(item.about["paper"], places.get(part, {})) for part in parts]
    common = [name for name in columns[0] if all(name in scores for scores in columns)]
    return {name: {0: sum(scores[name] for scores in columns) / len(columns)} for name in common}


def _printed_column(paper: str, where: Mapping[str, str]) -> dict[str, float]:
    """Map each method to its printed value, for everything that is printed in the same place as a row."""
    if not where:
        return {}
    return printed_column(
        paper, frozenset((name, value) for name, value in where.items() if name != "method")
    )

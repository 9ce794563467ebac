"""Test whether two methods differ: paired tests over seeds, and ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..runs.comparable import classes, comparability, why_not
from ..runs.groups import Group, groups
from ..runs.load import Runs
from ..table import TextTable
from .intervals import t_interval, t_tail
from .measures import measures

Floats = NDArray[np.float64]

EXACT = 14  # The largest number of seeds for which all changes of sign are tried.


class Paired(NamedTuple):
    """The difference a − b over common seeds, in percentage points.

    Attributes:
        seeds: the number of seeds that both methods have.
        mean: the mean difference.
        half: half the width of its 95 % interval.
        p_t: the p-value of the paired t-test.
        p_signs: the p-value of the exact test over changes of sign.

    The last three are NaN for fewer than two seeds.
    """

    seeds: int
    mean: float
    half: float
    p_t: float
    p_signs: float


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Paired:
    """Compare two methods on the seeds they share.

    A seed fixes the split, the initial weights and the order of batches for both.
    """
    common = sorted(set(a) & set(b))
    differences = [100 * (a[seed] - b[seed]) for seed in common]
    n = len(differences)
    mean = sum(differences) / n if n else math.nan
    if n < 2:
        return Paired(n, mean, math.nan, math.nan, math.nan)
    spread = float(np.std(differences, ddof=1))
    p_t = t_tail(abs(mean) / (spread / math.sqrt(n)), n - 1) if spread else (1.0 if mean == 0 else 0.0)
    return Paired(n, mean, t_interval(differences), p_t, sign_changes(differences))


def sign_changes(differences: Sequence[float]) -> float:
    """Exact two-sided p-value of the paired permutation test: every one of the 2^n changes of sign counts.

    The p-value is the share of them whose mean is at least as far from 0 as the mean that was measured. The
    test assumes no normal distribution. With n seeds its p-value cannot fall below 2/2^n, which is 0.25 for
    three seeds and 0.0625 for five. Returns NaN above 14 seeds, where trying all of them would take long.
    """
    from scipy.stats import permutation_test

    if len(differences) > EXACT:
        return math.nan
    data = (np.asarray(differences, dtype=np.float64),)
    found = permutation_test(
        data, _rounded_sum, permutation_type="samples", n_resamples=math.inf, vectorized=True
    )
    return float(found.pvalue)


def _rounded_sum(values: Floats, axis: int) -> Floats:
    """Sums in which ties stay ties, although rounding makes equal sums of floating point numbers differ."""
    sums: Floats = np.round(np.sum(values, axis=axis), 9)
    return sums


def seed_scores(runs: Runs, group: Group, measure: str = "accuracy_last") -> dict[int, float]:
    """Map each seed to the measure of a group's run. Seeds without the measure are left out."""
    values, seeds = measures(runs)[measure], runs.runs["seed"]
    return {int(seeds[name]): float(values[name]) for name in group.used if not math.isnan(values[name])}


def comparison_table(
    runs: Runs, members: Sequence[Group], measure: str = "accuracy_last"
) -> TextTable | None:
    """Compare every method of a task with the best one, paired by seed.

    Methods that may not be compared with the others are named with the reason and tested only against each
    other. Every row then names the method it is compared with. analysis/runs/comparable.py decides what may
    be compared. Return None if no two methods share two seeds.
    """
    sets, told = (
        classes(runs, members),
        {label: one.against for label, one in comparability(runs, members).items()},
    )
    found = [_against_best(runs, one, measure) for one in sets]
    if not any(found):
        return None
    if len(sets) == 1:
        titles = [
            "Method",
            "Seeds",
            f"Difference to {found[0][0][1]}, points",
            "p (paired t)",
            "p (sign changes)",
        ]
        return TextTable(titles, [[label, *cells] for label, _, cells in found[0]], frozenset({"Method"}))
    lines = []
    for one, compared in zip(sets, found, strict=True):
        lines += [[label, best, *cells, told[label] or "yes"] for label, best, cells in compared]
        tested = {label for label, _, _ in compared} | {best for _, best, _ in compared}
        lines += [
            [group.label, "–", "–", "–", "–", "–", told[group.label]]
            for group in one
            if told[group.label] and group.label not in tested
        ]
    titles = [
        "Method",
        "Compared with",
        "Seeds",
        "Difference, points",
        "p (paired t)",
        "p (sign changes)",
        "Comparable",
    ]
    return TextTable(titles, lines, frozenset({"Method", "Compared with", "Comparable"}))


def _against_best(runs: Runs, members: Sequence[Group], measure: str) -> list[tuple[str, str, list[str]]]:
    """Return (method, best method, cells) for comparable methods.

    The cells are seeds, difference and p-values.

    The result is empty if no method shares two seeds with the best one.
    """
    scores = {group.label: seed_scores(runs, group, measure) for group in members}
    means = {label: sum(found.values()) / len(found) for label, found in scores.items() if found}
    if len(means) < 2:
        return []
    best = max(means, key=lambda label: means[label])
    found = {
        label: paired(scores[label], scores[best])
        for label in sorted(means, key=lambda one: -means[one])
        if label != best
    }
    if all(one.seeds < 2 for one in found.values()):
        return []
    return [
        (label, best, [str(one.seeds), _signed(one.mean, one.half), _p(one.p_t), _p(one.p_signs)])
        for label, one in found.items()
    ]


class Ranking(NamedTuple):
    """Mean ranks over the tasks on which all methods were run; rank 1 is best.

    `difference` is the critical difference of two ranks, and `tasks` is the number of tasks.
    """

    ranks: dict[str, float]
    difference: float
    tasks: int

    def cliques(self) -> list[tuple[float, float]]:
        """Return the longest spans of ranks within which no two methods differ."""
        ordered = sorted(self.ranks.values())
        spans: list[tuple[float, float]] = []
        for low in ordered:
            high = max(rank for rank in ordered if rank - low <= self.difference)
            if high > low and (not spans or high > spans[-1][1]):
                spans.append((low, high))
        return spans


def ranking(runs: Runs, measure: str = "accuracy_last") -> Ranking | None:
    """Rank methods over data sets after Demšar (2006), with the Nemenyi test at 0.05.

    Only the largest set of comparable experiments of each task counts. Return None for fewer than three
    methods or fewer than two tasks that they share.
    """
    table: dict[str, dict[tuple[str, str], float]] = {}
    for group in groups(runs):
        found = seed_scores(runs, group, measure)
        if found and not why_not(runs, group):
            table.setdefault(group.label, {})[group.task] = sum(found.values()) / len(found)
    frame = pd.DataFrame(table)  # tasks x methods
    counts = frame.notna().sum()
    frame = frame[counts[counts == counts.max()].index].dropna()
    tasks, count = frame.shape
    if count < 3 or tasks < 2:
        return None
    ranks = frame.rank(axis=1, ascending=False).mean()
    return Ranking(
        {str(label): float(rank) for label, rank in ranks.items()}, critical_difference(count, tasks), tasks
    )


def critical_difference(methods: int, tasks: int) -> float:
    """Return q_0.05 √(k(k+1)/(6N)) for k methods on N tasks (Nemenyi; Demšar 2006, section 3.2.2)."""
    return range_quantile(methods) / math.sqrt(2) * math.sqrt(methods * (methods + 1) / (6 * tasks))


@cache
def range_quantile(count: int, inside: float = 0.95) -> float:
    """The q that the range of `count` standard normal numbers does not exceed with probability `inside`.

    This is the quantile of the studentised range with infinitely many degrees of freedom.
    """
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(inside, count, math.inf))


def _signed(mean: float, half: float) -> str:
    text = f"{mean:+.2f}".replace("-", "−")
    return text if math.isnan(half) else f"{text} ± {half:.2f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else ("< 0.001" if value < 0.001 else f"{value:.3f}")

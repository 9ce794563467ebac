"""Test whether two methods differ: paired tests over seeds, and ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..runs.comparable import classes, comparability, why_not
from ..runs.groups import Group, groups, lost_seeds
from ..runs.load import Runs
from ..table import TextTable
from .holm import holm
from .intervals import LEAST_SEEDS, t_interval, t_tail
from .measures import measures
from .targets import baseline_of

Floats = NDArray[np.float64]

HOLM = "p (Holm)"
HOLM_NOTE = (
    "p (Holm): the p-value of the paired t-test, corrected for the number of methods in its table. The best "
    "method is chosen from the same numbers, so of equally good methods one is called worse than it in more "
    "than 5 % of tables"
)
LEVEL = 0.05
NO_SPREAD = 1e-9  # points; differences that vary less are equal but for the rounding of float64
EXACT = 14  # The largest number of seeds for which all changes of sign are tried.


class Paired(NamedTuple):
    """The difference a − b over common seeds, in percentage points.

    Attributes:
        seeds: the number of seeds that both methods have.
        mean: the mean difference.
        half: half the width of its 95 % interval.
        p_t: the p-value of the paired t-test.
        p_signs: the p-value of the exact test over changes of sign.

    The last three are NaN for fewer than two seeds. The half width and p_t are also NaN where the difference
    is the same in all seeds and not 0, because a t-test without spread would be certain of anything.
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
    half, p_t = _t_test(differences)
    return Paired(n, mean, half, p_t, sign_changes(differences))


def _t_test(differences: Sequence[float]) -> tuple[float, float]:
    """Return the half width of the mean's 95 % interval and the p-value of the t-test, of two or more."""
    n, mean = len(differences), sum(differences) / len(differences)
    spread = float(np.std(differences, ddof=1))
    if spread > NO_SPREAD:
        return t_interval(differences), t_tail(abs(mean) / (spread / math.sqrt(n)), n - 1)
    return (0.0, 1.0) if abs(mean) <= NO_SPREAD else (math.nan, math.nan)


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
    test = permutation_test(
        data, _rounded_sum, permutation_type="samples", n_resamples=math.inf, vectorized=True
    )
    return float(test.pvalue)


def _rounded_sum(values: Floats, axis: int) -> Floats:
    """Sums in which ties stay ties, although rounding makes equal sums of floating point numbers differ."""
    sums: Floats = np.round(np.sum(values, axis=axis), 9)
    return sums


def seed_scores(runs: Runs, group: Group, measure: str = "accuracy_last") -> dict[int, float]:
    """Map each seed to the measure of a group's run. Seeds without the measure are left out."""
    values, seeds = measures(runs)[measure], runs.runs["seed"]
    return {int(seeds[name]): float(values[name]) for name in group.used if not math.isnan(values[name])}


def comparison_table(
    runs: Runs, members: Sequence[Group], measure: str = "accuracy_last", against: str = ""
) -> TextTable | None:
    """Compare every method of a task with another one, paired by seed.

    The other one is the best one of those that share two seeds with another one, or the experiment with the
    label `against`. Methods that may not be
    compared with the others are named with the reason and tested only against each other. Every row then
    names the method it is compared with. analysis/runs/comparable.py decides what may be compared. Where
    several methods are tested, a column holds the p-values of the paired t-test after Holm's correction over
    the whole table. Return None if no two methods share two seeds.
    """
    sets, told = (
        classes(runs, members, measure=measure),
        {label: verdict.against for label, verdict in comparability(runs, members).items()},
    )
    by_set = _compared(runs, sets, measure, against)
    if not any(by_set):
        return None
    several = sum(map(len, by_set)) > 1
    tests = ["p (paired t)", *([HOLM] if several else []), "p (sign changes)"]
    if len(sets) == 1:
        titles = ["Method", "Seeds", f"Difference to {by_set[0][0].reference}, points", *tests]
        lines = [[row.label, *row.cells(several)] for row in by_set[0]]
        return TextTable(titles, lines, frozenset({"Method"}))
    lines = []
    for rivals, compared in zip(sets, by_set, strict=True):
        lines += [
            [row.label, row.reference, *row.cells(several), told[row.label] or "yes"] for row in compared
        ]
        tested = {row.label for row in compared} | {row.reference for row in compared}
        blank = ["–"] * (3 + len(tests))
        lines += [
            [group.label, *blank, told[group.label]]
            for group in rivals
            if told[group.label] and group.label not in tested
        ]
    titles = ["Method", "Compared with", "Seeds", "Difference, points", *tests, "Comparable"]
    return TextTable(titles, lines, frozenset({"Method", "Compared with", "Comparable"}))


class MethodDifference(NamedTuple):
    """A method, the one it is compared with, their difference, and its p-value after Holm's correction."""

    label: str
    reference: str
    difference: Paired
    p_holm: float

    def cells(self, several: bool) -> list[str]:
        """Return seeds, difference and p-values. Two seeds are too few for an interval and a p-value."""
        seeds, mean, half, p_t, p_signs = self.difference
        if seeds < LEAST_SEEDS:
            return [str(seeds), signed(mean), *(["–"] if several else []), "–", "–"]
        holm_p = [p_text(self.p_holm)] if several else []
        return [str(seeds), signed(mean, half), p_text(p_t), *holm_p, p_text(p_signs)]


def _compared(
    runs: Runs, sets: Sequence[Sequence[Group]], measure: str, against: str
) -> list[list[MethodDifference]]:
    """Return the methods of each set against its best one, or against the one with the label `against`.

    The list of a set is empty if no method shares two seeds with that one. Holm's correction is over all sets
    together.
    """
    rows: list[list[tuple[str, str, Paired]]] = []
    tests: list[float] = []  # the p-values of the rows' tests, set by set
    for members in sets:
        scores = {group.label: seed_scores(runs, group, measure) for group in members}
        scores = {label: by_seed for label, by_seed in scores.items() if by_seed}
        reference = against or best_of(_sharing(scores))
        pairs: list[tuple[str, str, Paired]] = []
        if len(scores) > 1 and reference in scores:
            order = sorted(scores, key=lambda label: -_mean(scores[label].values()))
            pairs = [
                (label, reference, paired(scores[label], scores[reference]))
                for label in order
                if label != reference
            ]
            if all(test.seeds < 2 for _, _, test in pairs):
                pairs = []
        rows.append(pairs)
        tests += [test.p_t if test.seeds >= LEAST_SEEDS else math.nan for _, _, test in pairs]
    adjusted = iter(holm(tests))
    return [[MethodDifference(*pair, next(adjusted)) for pair in pairs] for pairs in rows]


def differences_to(runs: Runs, members: Sequence[Group], measure: str, label: str) -> list[MethodDifference]:
    """Return the methods of a task that may be compared with the one of this label, with their tests."""
    compared = _compared(runs, classes(runs, members, measure=measure), measure, label)
    return [row for rows in compared for row in rows]


def _sharing(scores: Mapping[str, Mapping[int, float]]) -> Mapping[str, Mapping[int, float]]:
    """Return the labels that share two seeds with another one, of which there is a difference; else all."""
    sharing = {
        label: mine
        for label, mine in scores.items()
        if any(len(mine.keys() & its.keys()) > 1 for other, its in scores.items() if other != label)
    }
    return sharing or scores


def best_of(scores: Mapping[str, Mapping[int, float]]) -> str:
    """Return the label with the highest mean over the seeds that all labels have; "" without any.

    If they share no seed, each mean is over the label's own seeds. So a method is not the best only because
    the others also ran with a seed that is hard for all.
    """
    common = set.intersection(*map(set, scores.values())) if scores else set()
    means = {
        label: _mean([score[seed] for seed in common] or score.values()) for label, score in scores.items()
    }
    return max(means, key=lambda label: means[label], default="")


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def established_best(runs: Runs, members: Sequence[Group], measure: str) -> frozenset[str]:
    """Return the label of the best method of each set that may be compared, if it is above every other one.

    Each paired t-test has p < 0.05 after Holm's correction. That needs three common seeds at least. The
    result is empty if a set has no such method, and while a seed of any method has failed, because the seeds
    that are left may be its good ones. The best method need not have the highest mean over all its seeds,
    because the tests are over common seeds.
    """
    if any(lost_seeds(runs, group) for group in members):
        return frozenset()
    rivals = [alike for alike in classes(runs, members, measure=measure) if len(alike) > 1]
    tests = _compared(runs, rivals, measure, "")
    above = (rows and all(row.p_holm < LEVEL and row.difference.mean < 0 for row in rows) for rows in tests)
    if not all(above):
        return frozenset()
    return frozenset(row.reference for rows in tests for row in rows)


def paired_tables(runs: Runs, members: Sequence[Group]) -> dict[str, TextTable]:
    """Map titles to the tables of paired differences: to the best method, and to FedAvg if that is another.

    Each of them is a family of tests of its own for Holm's correction.
    """
    return runs.once(("paired", tuple(members)), lambda: _paired_tables(runs, members))


def _paired_tables(runs: Runs, members: Sequence[Group]) -> dict[str, TextTable]:
    best, group = comparison_table(runs, members), baseline_of(runs, members)
    if best is None:
        return {}
    baseline = "" if group is None else group.label
    other = comparison_table(runs, members, against=baseline) if baseline and len(best.rows) > 1 else None
    tables = {"Differences, paired by seed": best}
    if other is not None and (other.titles, other.rows) != (best.titles, best.rows):
        tables[f"Differences to {baseline}, paired by seed"] = other
    return tables


def seeds_note(members: Sequence[Group]) -> str:
    """Return a sentence about methods with exactly two seeds, which have no interval; "" without any."""
    few = [group.label for group in members if len(group.used) == LEAST_SEEDS - 1]
    if not few:
        return ""
    return f"two seeds are too few for an interval or a test ({', '.join(few)}); three are the least"


class Ranking(NamedTuple):
    """Mean ranks over the tasks on which all of these methods were run; rank 1 is best.

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
        scores = seed_scores(runs, group, measure)
        if scores and not why_not(runs, group):
            table.setdefault(group.label, {})[group.task] = sum(scores.values()) / len(scores)
    frame = _largest_block(pd.DataFrame(table))
    tasks, count = frame.shape
    if count < 3 or tasks < 2:
        return None
    ranks = frame.rank(axis=1, ascending=False).mean()
    return Ranking(
        {str(label): float(rank) for label, rank in ranks.items()}, critical_difference(count, tasks), tasks
    )


def _largest_block(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the largest part of tasks × methods without a gap, with three methods and two tasks at least.

    Methods are taken by the number of their tasks, so that one that ran on more tasks does not stand alone.
    """
    counts = frame.notna().sum()
    blocks = [
        frame[counts[counts >= least].index].dropna() for least in sorted(set(counts), reverse=True) if least
    ]
    ranked = [block for block in blocks if block.shape[0] >= 2 and block.shape[1] >= 3]
    return max(ranked, key=lambda block: block.size, default=pd.DataFrame())


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


def signed(mean: float, half: float = math.nan) -> str:
    """Write a difference with its sign, and half the width of its interval if it is known."""
    if math.isnan(mean):
        return "–"
    text = f"{mean:+.2f}".replace("-", "−")
    return text if math.isnan(half) else f"{text} ± {half:.2f}"


def p_text(value: float) -> str:
    """Write a p-value with three decimal places."""
    return "–" if math.isnan(value) else ("< 0.001" if value < 0.001 else f"{value:.3f}")

"""Ranks of methods over blocks, and which of them Holm's correction separates.

A block is a task on which all methods have a number. The ranks are compared in pairs by the normal
approximation of Demšar (2006, section 3.2.2), and all pairs are corrected together by Holm's method, as
García and Herrera (2008) do ("An extension on statistical comparisons of classifiers over multiple data sets
for all pairwise comparisons").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pandas as pd

from .compare import LEVEL, Ranking
from .holm import holm


def holm_ranking(scores: Mapping[str, Mapping[str, float]]) -> Ranking | None:
    """Return the mean ranks of methods over the blocks that all of them have.

    The critical difference is the largest difference of two mean ranks that Holm's correction over all pairs
    does not separate at 0.05. All differences have the same standard error, so larger ones are separated.
    If Friedman's test finds no difference at all, no pair is separated.

    Args:
        scores: Method → block → a number of which high ones are good.

    Returns:
        The ranking, or None for fewer than three methods or fewer than two common blocks.
    """
    frame = pd.DataFrame(scores).dropna()
    blocks, count = frame.shape
    if count < 3 or blocks < 2:
        return None
    ranks = {str(name): float(rank) for name, rank in frame.rank(axis=1, ascending=False).mean().items()}
    if friedman(ranks, blocks) > LEVEL:
        return Ranking(ranks, float(count), blocks)
    return Ranking(ranks, holm_difference(ranks, blocks), blocks)


def friedman(ranks: Mapping[str, float], blocks: int) -> float:
    """Return the p-value of Friedman's test in the form of Iman and Davenport (Demšar 2006, section 3.2.1).

    χ² = 12N/(k(k+1)) · (Σ R² − k(k+1)²/4) and F = (N−1)χ² / (N(k−1) − χ²) with k − 1 and (k−1)(N−1) degrees
    of freedom.

    Args:
        ranks: Method → mean rank; k methods.
        blocks: Number N of blocks.
    """
    from scipy.special import fdtrc

    count = len(ranks)
    squares = sum(rank**2 for rank in ranks.values())
    chi = 12 * blocks / (count * (count + 1)) * (squares - count * (count + 1) ** 2 / 4)
    rest = blocks * (count - 1) - chi
    if rest <= 1e-9:
        return 0.0
    return float(fdtrc(count - 1, (count - 1) * (blocks - 1), (blocks - 1) * chi / rest))


def holm_difference(ranks: Mapping[str, float], blocks: int) -> float:
    """Return the largest difference of two mean ranks that is not separated; 0 if all are."""
    from scipy.special import ndtr

    count = len(ranks)
    error = math.sqrt(count * (count + 1) / (6 * blocks))
    differences = [abs(a - b) for a, b in itertools.combinations(ranks.values(), 2)]
    adjusted = holm([float(2 * ndtr(-difference / error)) for difference in differences])
    return max(
        (difference for difference, p in zip(differences, adjusted, strict=True) if p >= LEVEL), default=0.0
    )

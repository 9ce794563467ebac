"""Judge claims about a table's cells on our runs, seed by seed, with a 95 % t-interval.

A claim says that Σ factor · value − minus is above 0, or within some distance of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.intervals import t_interval
from ..runs.load import Runs
from ..table import TextTable
from .cell_values import values_of
from .item_runs import Reproduction
from .term_strength import no_test


class ClaimResult(NamedTuple):
    """A claim with its left-hand side for every seed that all its cells have, in the unit of the measure.

    Attributes:
        text: the claim in words.
        values: the left-hand side, one value for each seed.
        given: the same of the claim's premise; empty if it has none.
        within: how far from 0 the left-hand side may be; 0 for values that must be equal, None if it must be
            above 0.
        no_test: why the settings test nothing; empty if they do.
    """

    text: str
    values: Sequence[float]
    given: Sequence[float] = ()
    within: float | None = None
    no_test: str = ""

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval; NaN for fewer than two seeds."""
        return t_interval(self.values) if self.values else math.nan

    @property
    def verdict(self) -> str:
        """Whether the claim holds.

        It holds if the whole interval is where it should be, and fails if the whole interval is outside. It
        says nothing if its premise does not hold. Values that must be equal are so in every seed, so one seed
        decides.
        """
        if self.within == 0 and self.values:
            return "fails" if any(self.values) else "holds"
        if len(self.values) < 2:
            return "one seed" if self.values else "not run"
        if self.given and ClaimResult("", self.given).verdict != "holds":
            return "says nothing: its premise does not hold"
        if self.no_test:
            return self.no_test
        if self.within is not None:
            near, far = abs(self.mean) - self.half, abs(self.mean) + self.half
            return "holds" if far <= self.within else "fails" if near > self.within else "not separated"
        if abs(self.mean) <= self.half:
            return "not separated"
        return "holds" if self.mean > 0 else "fails"


def claim_results(item: Reproduction, runs: Runs) -> list[ClaimResult]:
    """Return the claims of the item."""
    found = []
    for claim in item.about.get("claims", ()):
        left, given = _sums(item, claim["terms"], runs), _sums(item, claim.get("given", ()), runs)
        seeds = sorted(left.keys() & given.keys() if claim.get("given") else left)
        values = [left[seed] - claim.get("minus", 0.0) for seed in seeds]
        found.append(
            ClaimResult(
                claim["text"],
                values,
                [given[seed] for seed in seeds if given],
                claim.get("within"),
                no_test(claim["terms"], item, runs),
            )
        )
    return found


def _sums(item: Reproduction, terms: Sequence[Sequence[float | str]], runs: Runs) -> dict[int, float]:
    """Map each seed that all cells have to Σ factor · value.

    A term is a factor, a row, a column, and optionally a measure.
    """
    cells = [
        (float(factor), values_of(item, (str(row), str(column)), runs, *map(str, measure)))
        for factor, row, column, *measure in terms
    ]
    seeds = set.intersection(*(set(values) for _, values in cells)) if cells else set()
    return {seed: sum(factor * values[seed] for factor, values in cells) for seed in seeds}


def claim_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return a table of claims, left-hand sides, seeds and verdicts; None without claims.

    Smoke runs only show whether values are equal.
    """
    found = [one for one in claim_results(item, runs) if item.about["scale"] != "smoke" or one.within == 0]
    if not found:
        return None
    lines = [[one.text, _shown(one), str(len(one.values)), one.verdict] for one in found]
    return TextTable(
        ["Claim", "Ours: left side − right side", "Seeds", "Verdict"], lines, frozenset({"Claim", "Verdict"})
    )


def _shown(one: ClaimResult) -> str:
    if not one.values:
        return "–"
    half = "" if math.isnan(one.half) else f" ± {one.half:.2f}"
    return f"{one.mean:+.2f}".replace("-", "−") + half

"""What is claimed of a table's cells, judged on our runs seed by seed, with a 95 % t-interval.

That Σ factor · value − minus is above 0, or within some distance of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..metrics.intervals import t_interval
from ..runs.load import Runs
from ..table import TextTable
from .item_runs import Reproduction
from .verdicts import values_of


class Judged(NamedTuple):
    """A claim and its left-hand side for every seed that all its cells have, in the measure's unit; the same
    of its premise, empty where it has none. within: how far from 0 that may be, 0 for what is equal; None
    where it is to be above 0.
    """

    text: str
    values: Sequence[float]
    given: Sequence[float] = ()
    within: float | None = None

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def half(self) -> float:
        """Half the 95 % interval; NaN with fewer than two seeds."""
        return t_interval(self.values) if self.values else math.nan

    @property
    def verdict(self) -> str:
        """holds, fails: the whole interval is where it should be, or outside; says nothing: that of its
        premise is not above 0.

                What is equal is so in every seed, and one seed tells.
        """
        if self.within == 0 and self.values:
            return "fails" if any(self.values) else "holds"
        if len(self.values) < 2:
            return "one seed" if self.values else "not run"
        if self.given and Judged("", self.given).verdict != "holds":
            return "says nothing: its premise does not hold"
        if self.within is not None:
            near, far = abs(self.mean) - self.half, abs(self.mean) + self.half
            return "holds" if far <= self.within else "fails" if near > self.within else "not separated"
        if abs(self.mean) <= self.half:
            return "not separated"
        return "holds" if self.mean > 0 else "fails"


def judged(item: Reproduction, runs: Runs) -> list[Judged]:
    """The item's claims; none where it makes none."""
    found = []
    for claim in item.about.get("claims", ()):
        left, given = _sums(item, claim["terms"], runs), _sums(item, claim.get("given", ()), runs)
        seeds = sorted(left.keys() & given.keys() if claim.get("given") else left)
        values = [left[seed] - claim.get("minus", 0.0) for seed in seeds]
        found.append(
            Judged(claim["text"], values, [given[seed] for seed in seeds if given], claim.get("within"))
        )
    return found


def _sums(item: Reproduction, terms: Sequence[Any], runs: Runs) -> dict[int, float]:
    """Seed → Σ factor · value, of the seeds that all cells have; a term is factor, row, column and
    perhaps a measure.
    """
    cells = [
        (factor, values_of(item, (row, column), runs, *measure)) for factor, row, column, *measure in terms
    ]
    seeds = set.intersection(*(set(values) for _, values in cells)) if cells else set()
    return {seed: sum(factor * values[seed] for factor, values in cells) for seed in seeds}


def claim_sheet(item: Reproduction, runs: Runs) -> TextTable | None:
    """Claim, left-hand side, seeds, verdict; None without claims. Smoke runs show what is equal, and
    nothing else.
    """
    found = [one for one in judged(item, runs) if item.about["scale"] != "smoke" or one.within == 0]
    if not found:
        return None
    lines = [[one.text, _shown(one), str(len(one.values)), one.verdict] for one in found]
    return TextTable(
        ["Claim", "Ours: left side − right side", "Seeds", "Verdict"], lines, frozenset({"Claim", "Verdict"})
    )


def _shown(one: Judged) -> str:
    if not one.values:
        return "–"
    half = "" if math.isnan(one.half) else f" ± {one.half:.2f}"
    return f"{one.mean:+.2f}".replace("-", "−") + half

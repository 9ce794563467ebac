"""Judge claims about a table's cells on our runs, seed by seed, with a 95 % t-interval.

A claim says that Σ factor · value − minus is above 0, or within some distance of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.compare import NO_SPREAD
from ..metrics.intervals import LEAST_SEEDS, reported_interval
from ..runs.load import Runs
from ..table import TextTable
from .absent import DIVERGED, NOT_RUN, absence, first_said, lost_runs
from .cell_values import DIGITS, values_of
from .item_runs import Place, Reproduction, cell_at, measure_of
from .numbers import shown
from .term_strength import no_test
from .verdict_marks import FEW_SEEDS, SETTINGS_MISSING
from .verdicts import half_tried


class ClaimResult(NamedTuple):
    """A claim with its left-hand side for every seed that all its cells have, in the unit of the measure.

    Attributes:
        text: the claim in words.
        values: the left-hand side, one value for each seed.
        given: the same of the claim's premise; empty if it has none.
        within: how far from 0 the left-hand side may be; 0 for values that must be equal, None if it must be
            above 0.
        no_test: why the settings test nothing; empty if they do.
        absent: the verdict if there are no values.
        unsettled: why the values are not final, such as settings that were not run; empty if they are.
        chosen: which rows of the claim are the best of several settings; empty if none is.
        counted: whether values are counts or sizes, which may be exactly alike in all seeds.
    """

    text: str
    values: Sequence[float]
    given: Sequence[float] = ()
    within: float | None = None
    no_test: str = ""
    absent: str = NOT_RUN
    unsettled: str = ""
    chosen: str = ""
    counted: bool = False

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval; NaN for fewer than three seeds."""
        return reported_interval(self.values)

    @property
    def verdict(self) -> str:
        """Whether the claim holds.

        It holds if the whole interval is where it should be, and fails if the whole interval is outside. It
        says nothing if its premise does not hold, or from fewer than three seeds. Values that must be equal
        are so in every seed, so one seed decides. Values that are not finite, and accuracies whose difference
        is the same in all seeds, have no interval and separate nothing.
        """
        if self.unsettled and self.values:
            return self.unsettled
        if self.within == 0 and self.values:
            return "fails" if any(self.values) else "holds"
        if len(self.values) < LEAST_SEEDS:
            return FEW_SEEDS.get(len(self.values), self.absent)
        if self.given and ClaimResult("", self.given).verdict != "holds":
            return "says nothing: its premise does not hold"
        if self.no_test:
            return self.no_test
        if self.within is not None:
            near, far = abs(self.mean) - self.half, abs(self.mean) + self.half
            return "holds" if far <= self.within else "fails" if near > self.within else "not separated"
        alike = not self.counted and self.half <= NO_SPREAD
        if alike or math.isnan(self.half) or abs(self.mean) <= self.half:
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
                NOT_RUN if values else _absent(item, [*claim["terms"], *claim.get("given", ())], runs),
                _unsettled(item, claim["terms"], runs),
                _chosen(item, claim["terms"]),
                all(_measure(item, term) in DIGITS for term in claim["terms"]),
            )
        )
    return found


def _places(item: Reproduction, terms: Sequence[Sequence[float | str]]) -> list[Place]:
    """Return the cells that a claim names, those behind an average in its place."""
    behind = {one["column"]: one["of"] for one in item.about.get("averages", ())}
    named = [(str(row), str(column)) for _, row, column, *_ in terms]
    return list(dict.fromkeys((row, part) for row, column in named for part in behind.get(column, [column])))


def _unsettled(item: Reproduction, terms: Sequence[Sequence[float | str]], runs: Runs) -> str:
    """Return that runs of the claim diverged, or that settings of its cells were not run; "" if neither."""
    unfinished, places = half_tried(item, runs), _places(item, terms)
    lost = dict.fromkeys(row for row, column in places if lost_runs(item, (row, column)))
    if lost:
        return f"{DIVERGED}: training diverged in some runs of {', '.join(lost)}"
    rows = dict.fromkeys(row for row, column in places if (row, column) in unfinished)
    return f"{SETTINGS_MISSING}: not all settings of {', '.join(rows)} were run" if rows else ""


def _chosen(item: Reproduction, terms: Sequence[Sequence[float | str]]) -> str:
    """Return which rows of the claim are the best of several settings, chosen by the same runs."""
    cells = {(str(cell["row"]), str(cell["column"])): cell for cell in item.about["cells"]}
    several = {
        place[0]: len(cells[place]["settings"])
        for place in _places(item, terms)
        if len(cells.get(place, {}).get("settings", ())) > 1
    }
    return "; ".join(f"{row} is the best of {count} settings" for row, count in several.items())


def _measure(item: Reproduction, term: Sequence[float | str]) -> str:
    """Return the measure of a term of a claim."""
    if len(term) > 3:
        return str(term[3])
    cells = (cell_at(item, place) for place in _places(item, [term]))
    return measure_of(item, next((cell for cell in cells if cell is not None), {}))


def _absent(item: Reproduction, terms: Sequence[Sequence[float | str]], runs: Runs) -> str:
    """Return why a claim about these cells has no values."""
    places = dict.fromkeys((str(row), str(column)) for _, row, column, *_ in terms)
    return first_said([absence(item, place, runs) for place in places]).word or NOT_RUN


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


def judged(item: Reproduction, runs: Runs) -> list[ClaimResult]:
    """Return the claims that the item's scale can say something about.

    Smoke runs only show whether values are equal.
    """
    return [one for one in claim_results(item, runs) if item.about["scale"] != "smoke" or one.within == 0]


def claim_counts(item: Reproduction, runs: Runs) -> str:
    """Return how many claims have each verdict, such as `4 claims: holds 3, not separated 1`."""
    return tally([_word(item, one) for one in judged(item, runs)])


def tally(verdicts: Sequence[str]) -> str:
    """Return how often each verdict is there, the most frequent first.

    A reason that follows a verdict, as in "no test: the terms of …", differs by claim, so it is left out.
    """
    words = Counter(one.partition(":")[0] for one in verdicts)
    said = ", ".join(f"{word} {number}" for word, number in words.most_common())
    count = len(verdicts)
    return f"{count} claim{'' if count == 1 else 's'}: {said}" if count else ""


def claim_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return a table of claims, left-hand sides, seeds and verdicts; None without claims."""
    lines = [[_said(one), _shown(one), str(len(one.values)), _word(item, one)] for one in judged(item, runs)]
    if not lines:
        return None
    titles = ["Claim", "Ours: left side − right side", "Seeds", "Verdict"]
    return TextTable(titles, lines, frozenset({"Claim", "Verdict"}))


def _word(item: Reproduction, one: ClaimResult) -> str:
    """Return the verdict. Of smoke runs it says what was seen, because they decide nothing about a paper."""
    if item.about["scale"] != "smoke" or not one.values:
        return one.verdict
    return "runs, and the bits are equal" if one.verdict == "holds" else "runs, and the bits differ"


def _said(one: ClaimResult) -> str:
    """Return the claim, with what is to be known of its rows: a best of several gains by being chosen."""
    return f"{one.text} ({one.chosen})" if one.chosen else one.text


def _shown(one: ClaimResult) -> str:
    if not one.values:
        return "–"
    if not all(map(math.isfinite, one.values)):
        return shown(one.values, 2, sign=True)
    half = "" if math.isnan(one.half) else f" ± {one.half:.2f}"
    return f"{one.mean:+.2f}".replace("-", "−") + half

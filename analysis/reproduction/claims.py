"""Judge claims about a table's cells on our runs, seed by seed, by a paired t-test.

A claim says that Σ factor · value − minus is above 0, or within some distance of it. The p-values of all
claims of an item are corrected together by Holm's method.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.compare import HOLM, LEVEL, NO_SPREAD, p_text
from ..metrics.equivalence import TOO_FEW
from ..metrics.holm import holm
from ..metrics.intervals import LEAST_SEEDS, reported_interval, t_tail
from ..runs.load import Runs
from ..table import TextTable, without_blank
from .absent import NOT_RUN, absence, first_said
from .cell_values import DIGITS, values_of
from .item_runs import Place, Reproduction, cell_at, measure_at, parts_of
from .numbers import shown
from .term_strength import no_test, said_strengths
from .verdicts import unsettled

STRENGTH = "Strength of the terms"


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
        places: the cells and averages that the claim and its premise name.
        strengths: how strong the terms of these cells are; empty if it was not measured.
        adjusted: the p-value after Holm's correction over all claims of the item; None: there is no other.
        seeds: the seeds of the values.
        measure: how the numbers of the left-hand side are read.
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
    places: Sequence[Place] = ()
    strengths: str = ""
    adjusted: float | None = None
    seeds: Sequence[int] = ()
    measure: str = ""

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval; NaN for fewer than three seeds."""
        return reported_interval(self.values)

    @property
    def p(self) -> float:
        """The p-value of the paired t-test; NaN if no test can be made.

        It is two-sided: of the mean against 0, or of its distance from 0 against `within`. Values that are
        not finite have no test. Values that are the same in all seeds are certain if they are counts or have
        a distance to keep, as an accuracy at chance may be the same in all seeds; others have no test.
        """
        if (
            self.within == 0
            or self.unsettled
            or self.no_test
            or not self._premise
            or len(self.values) < LEAST_SEEDS
        ):
            return math.nan
        if not all(map(math.isfinite, self.values)):
            return math.nan
        away = abs(self.mean) if self.within is None else abs(abs(self.mean) - self.within)
        error = statistics.stdev(self.values) / math.sqrt(len(self.values))
        if error > NO_SPREAD:
            return t_tail(away / error, len(self.values) - 1)
        return (0.0 if away > NO_SPREAD else 1.0) if self.counted or self.within is not None else math.nan

    @property
    def _premise(self) -> bool:
        return not self.given or ClaimResult("", self.given).verdict == "holds"

    @property
    def verdict(self) -> str:
        """Whether the claim holds.

        It holds or fails if its p-value after Holm's correction is at most 0.05. It says nothing if its
        premise does not hold, or from fewer than three seeds. Values that must be equal are so in every
        seed, so one seed decides.
        """
        if self.unsettled and self.values:
            return self.unsettled
        if self.within == 0 and self.values:
            return "fails" if any(self.values) else "holds"
        if len(self.values) < LEAST_SEEDS:
            return TOO_FEW if self.values else self.absent
        if not self._premise:
            return "says nothing: its premise does not hold"
        if self.no_test:
            return self.no_test
        if not (self.p if self.adjusted is None else self.adjusted) <= LEVEL:
            return "not separated"
        true = self.mean > 0 if self.within is None else abs(self.mean) <= self.within
        return "holds" if true else "fails"


def claim_results(item: Reproduction, runs: Runs) -> list[ClaimResult]:
    """Return the claims of the item, corrected together."""
    results = []
    for claim in item.about.get("claims", ()):
        terms, premise = claim["terms"], claim.get("given", ())
        left, given = _sums(item, terms, runs), _sums(item, premise, runs)
        seeds = sorted(left.keys() & given.keys() if premise else left)
        named = list(dict.fromkeys((str(row), str(column)) for _, row, column, *_ in (*terms, *premise)))
        places = parts_of(item, *named)
        measures = dict.fromkeys(_measure(item, term) for term in terms)
        results.append(
            ClaimResult(
                claim["text"],
                [left[seed] - claim.get("minus", 0.0) for seed in seeds],
                [given[seed] for seed in seeds if premise],
                claim.get("within"),
                no_test(item, places, runs),
                first_said([absence(item, place, runs) for place in named]).word or NOT_RUN,
                unsettled(item, places, runs),
                _chosen(item, places),
                measures.keys() <= DIGITS.keys(),
                named,
                said_strengths(item, places, runs),
                seeds=seeds,
                measure="; ".join(measures),
            )
        )
    corrected = holm([claim.p for claim in results])
    return [claim._replace(adjusted=p) for claim, p in zip(results, corrected, strict=True)]


def _chosen(item: Reproduction, places: Sequence[Place]) -> str:
    """Return which rows of the claim are the best of several settings, chosen by the same runs."""
    cells = [cell for place in places if (cell := cell_at(item, place)) is not None]
    several = {cell["row"]: len(cell["settings"]) for cell in cells if len(cell.get("settings", ())) > 1}
    return "; ".join(f"{row} is the best of {count} settings" for row, count in several.items())


def _measure(item: Reproduction, term: Sequence[float | str]) -> str:
    """Return the measure of a term of a claim."""
    _, row, column, *measure = map(str, term)
    return measure[0] if measure else measure_at(item, (row, column))


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
    return [test for test in claim_results(item, runs) if item.about["scale"] != "smoke" or test.within == 0]


def claim_counts(item: Reproduction, runs: Runs) -> str:
    """Return how many claims have each verdict, such as `4 claims: holds 3, not separated 1`."""
    return tally([claim_word(item, claim) for claim in judged(item, runs)])


def tally(verdicts: Sequence[str]) -> str:
    """Return how often each verdict is there, the most frequent first.

    A reason that follows a verdict, as in "no test: the terms of …", differs by claim, so it is left out.
    """
    words = Counter(verdict.partition(":")[0] for verdict in verdicts)
    said = ", ".join(f"{word} {number}" for word, number in words.most_common())
    count = len(verdicts)
    return f"{count} claim{'' if count == 1 else 's'}: {said}" if count else ""


def claim_table(item: Reproduction, runs: Runs) -> TextTable | None:
    """Return a table of claims: left sides, seeds, p-values, strengths and verdicts; None without claims."""
    lines = [
        [
            _said(claim),
            _shown(claim),
            str(len(claim.values)),
            p_text(math.nan if claim.adjusted is None else claim.adjusted),
            claim.strengths or "–",
            claim_word(item, claim),
        ]
        for claim in judged(item, runs)
    ]
    if not lines:
        return None
    titles = ["Claim", "Ours: left side − right side", "Seeds", HOLM, STRENGTH, "Verdict"]
    return without_blank(
        TextTable(titles, lines, frozenset({"Claim", STRENGTH, "Verdict"})), {HOLM, STRENGTH}
    )


def claim_word(item: Reproduction, claim: ClaimResult) -> str:
    """Return the verdict. Of smoke runs it says what was seen, because they decide nothing about a paper."""
    if item.about["scale"] != "smoke" or not claim.values:
        return claim.verdict
    return "runs, and the bits are equal" if claim.verdict == "holds" else "runs, and the bits differ"


def _said(claim: ClaimResult) -> str:
    """Return the claim, with what is to be known of its rows: a best of several gains by being chosen."""
    return f"{claim.text} ({claim.chosen})" if claim.chosen else claim.text


def _shown(claim: ClaimResult) -> str:
    if not claim.values:
        return "–"
    if not all(map(math.isfinite, claim.values)):
        return shown(claim.values, 2, sign=True)
    half = "" if math.isnan(claim.half) else f" ± {claim.half:.2f}"
    return f"{claim.mean:+.2f}".replace("-", "−") + half

"""Count the cells that agree, and how many would if the baseline's own runs stood in every row's place.

A rule that the baseline passes in most cells says nothing about the methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.equivalence import AGREES, DIFFERS, TOO_FEW
from ..runs.load import Runs
from .item_runs import Reproduction
from .verdicts import Line, result_lines, verdict

CANNOT_TELL = "This table cannot tell: more than half of the cells agree with the baseline in their place"


class Agreement(NamedTuple):
    """How many cells of a table agree with the print.

    Attributes:
        baseline: name of the row whose runs stand in all others' place.
        agree: number of cells that agree.
        judged: number of cells that have a verdict on their number.
        null: number of cells that agree with the baseline's runs in their place.
        tried: number of judged cells whose column has runs of the baseline.
    """

    baseline: str
    agree: int
    judged: int
    null: int
    tried: int

    @property
    def null_rate(self) -> float:
        """The share of cells that agree with the baseline's runs in their place; NaN without such runs."""
        return self.null / self.tried if self.tried else math.nan

    @property
    def tells(self) -> bool:
        """Whether a count of this table says anything about its methods."""
        return not self.null_rate > 0.5

    def sentence(self) -> str:
        """Return the count with its null rate; empty if no cell is judged."""
        if not self.judged:
            return ""
        beside = f"{self.baseline} in their place: {self.null} of {self.tried}"
        said = (
            f"{self.agree} of {self.judged} agree; {beside if self.tried else f'no run of {self.baseline}'}"
        )
        return said if self.tells else f"{said}. {CANNOT_TELL}"


def agreement_of(item: Reproduction, runs: Runs) -> Agreement:
    """Return how many cells of an item agree. Only tables at full scale have cells that are judged so."""
    lines = result_lines(item, runs)
    baseline = str(item.about["baseline"])
    base = {line.column: line for line in lines if line.row == baseline and line.ours}
    judged = [line for line in lines if _word(item, line) in (AGREES, DIFFERS, TOO_FEW)]
    placed = [_with_runs_of(base[line.column], line) for line in judged if line.column in base]
    if item.about["scale"] != "full":
        judged, placed = [], []
    return Agreement(baseline, _agreeing(item, judged), len(judged), _agreeing(item, placed), len(placed))


def _with_runs_of(other: Line, line: Line) -> Line:
    return line._replace(
        ours=other.ours, lost=other.lost, settings_missing=other.settings_missing, no_test=False
    )


def _agreeing(item: Reproduction, lines: Sequence[Line]) -> int:
    return sum(_word(item, line) == AGREES for line in lines)


def _word(item: Reproduction, line: Line) -> str:
    return verdict(line, str(item.about["scale"]), float(item.about["margin"]))

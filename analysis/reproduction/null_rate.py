"""Count the cells that agree, and how many would if the baseline's own runs stood in every row's place.

A rule that the baseline passes in most cells says nothing about the methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..metrics.equivalence import AGREES, DIFFERS, TOO_FEW
from ..runs.load import Runs
from .cell_values import values_of
from .item_runs import Reproduction, measure_at
from .verdicts import Line, result_lines, verdict

CANNOT_TELL = "This table cannot tell: more than half of the cells agree with the baseline in their place"


class Agreement(NamedTuple):
    """How many cells of a table agree with the print.

    Attributes:
        baseline: name of the row whose runs stand in all others' place.
        agree: number of cells that agree.
        judged: number of cells that have a verdict on their number.
        null: number of cells that agree with the baseline's runs in their place.
        tried: number of judged cells whose column has the baseline's number in their measure.
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
        placed = f"{self.baseline} in their place: {self.null} of {self.tried}"
        beside = placed if self.tried else f"no result of {self.baseline}"
        said = f"{self.agree} of {self.judged} agree; {beside}"
        return said if self.tells else f"{said}. {CANNOT_TELL}"


def agreement_of(item: Reproduction, runs: Runs) -> Agreement:
    """Return how many cells of an item agree. Only tables at full scale have cells that are judged so.

    The baseline is read by each row's own measure, and has no null rate where some of its runs diverged.
    """
    baseline = str(item.about["baseline"])
    lines = result_lines(item, runs) if item.about["scale"] == "full" else []
    settled = {line.column for line in lines if line.row == baseline and not line.unsettled}
    judged = [line for line in lines if _word(item, line) in (AGREES, DIFFERS, TOO_FEW)]
    placed = []
    for line in judged:
        place, measure = (baseline, line.column), measure_at(item, (line.row, line.column))
        values = values_of(item, place, runs, measure) if line.column in settled else {}
        placed += [line._replace(ours=list(values.values()))] if values else []
    return Agreement(baseline, _agreeing(item, judged), len(judged), _agreeing(item, placed), len(placed))


def _agreeing(item: Reproduction, lines: Sequence[Line]) -> int:
    return sum(_word(item, line) == AGREES for line in lines)


def _word(item: Reproduction, line: Line) -> str:
    return verdict(line, str(item.about["scale"]), float(item.about["margin"]))

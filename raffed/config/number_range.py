"""A range of numbers as it is written on the command line: `1e-4..1:log`, `0.1..0.9:5`, `8..64`.

LOW..HIGH, then `:log` for steps of equal ratio, then `:POINTS` for the number of values in a grid. This
module imports neither torch nor Ray.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from raffed.config.validation import Value
from raffed.errors import UsageError

POINTS = 5  # values of a range in a grid, if the range says nothing
MOST = 1000
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FORM = re.compile(
    rf"\s*(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})(?P<log>:log)?(?::(?P<points>\d+))?\s*"
)


@dataclass(frozen=True)
class NumberRange:
    """The numbers from `low` to `high`.

    Attributes:
        low: The lowest number.
        high: The highest number, which belongs to the range.
        log: Whether ratios count, not differences; both ends are then above 0.
        points: Number of values that a grid takes of it, evenly spread, both ends among them.
        whole: Whether only whole numbers belong to it.
    """

    low: float
    high: float
    log: bool = False
    points: int = POINTS
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UsageError(f"{self}: the first number must be below the second")
        if self.log and self.low <= 0:
            raise UsageError(f"{self}: the first number of a logarithmic range must be above 0")
        if not 2 <= self.points <= MOST:
            raise UsageError(f"{self}: the number of values must be between 2 and {MOST}")

    def __str__(self) -> str:
        ends = f"{self.low:.10g}..{self.high:.10g}{':log' if self.log else ''}"
        return ends if self.points == POINTS else f"{ends}:{self.points}"

    def values(self) -> list[int | float]:
        """Return the values that a grid takes, in ascending order, each once."""
        steps = self.points - 1
        return list(dict.fromkeys(self._made(self._at(number / steps)) for number in range(self.points)))

    def draw(self, source: random.Random) -> int | float:
        """Return a number that is drawn evenly, or evenly in its logarithm."""
        return self._made(self._at(source.random()))

    def _at(self, share: float) -> float:
        if share >= 1:
            return self.high
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def _made(self, value: float) -> int | float:
        """Return a number short enough for the name of a folder."""
        return round(value) if self.whole else float(f"{value:.4g}")


def number_range(text: Value) -> NumberRange | None:
    """Return the range that a text describes; None if it does not have the form of one.

    Its numbers are whole if both ends are written as whole numbers.

    Raises:
        UsageError: The ends or the number of values are not possible.
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    whole = all(re.fullmatch(r"[+-]?\d+", found[end]) for end in ("low", "high"))
    points = POINTS if found["points"] is None else int(found["points"])
    return NumberRange(float(found["low"]), float(found["high"]), found["log"] is not None, points, whole)


__all__ = ["POINTS", "NumberRange", "number_range"]

"""The values that a search tries for one argument. This module imports neither torch nor Ray."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from raffed.config.validation import Value
from raffed.errors import UsageError

# A range of numbers as it is written on the command line: `1e-4..1:log`, `0.1..0.9:5`, `8..64`.
#
# LOW..HIGH, then `:log` for steps of equal ratio, then `:POINTS` for the number of values in a grid. This
# module imports neither torch nor Ray.


POINTS = 5  # values of a range in a grid, if the range says nothing
MOST = 1000
DIGITS = 4  # of a number within a range, so that the name of a trial's folder is short
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
        return list(dict.fromkeys(self._made(value, self._digits()) for value in self._points()))

    def draw(self, source: random.Random) -> int | float:
        """Return a number that is drawn evenly, or evenly in its logarithm.

        A whole number stands for all numbers that round to it, so that both ends are as likely as the others.
        """
        if not self.whole:
            return self._made(self._at(source.random()), self._digits())
        wider = replace(self, low=self.low - 0.5, high=self.high + 0.5)
        return int(min(max(round(wider._at(source.random())), self.low), self.high))

    def _points(self) -> list[float]:
        """Return as many numbers as a grid takes, before they are rounded."""
        return [self._at(number / (self.points - 1)) for number in range(self.points)]

    def _at(self, share: float) -> float:
        if share >= 1:
            return self.high
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def _digits(self) -> int:
        """Return how many digits numbers have: four, or more in a range in which some would then be equal."""
        exact = self._points()
        enough = (
            d for d in range(DIGITS, 17) if len({self._made(value, d) for value in exact}) == len(exact)
        )
        return DIGITS if self.whole else next(enough, 17)

    def _made(self, value: float, digits: int) -> int | float:
        """Return a number of the range, short enough for the name of a folder. The ends are not rounded."""
        if self.whole:
            return round(value)
        if value in (self.low, self.high):
            return value
        return min(max(float(f"{value:.{digits}g}"), self.low), self.high)


def number_range(text: Value) -> NumberRange | None:
    """Return the range that a text describes; None if it does not have the form of one.

    Its numbers are whole if both ends are written as whole numbers.

    Raises:
        UsageError: The ends or the number of values are not possible.
    """
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    whole = all(re.fullmatch(r"[+-]?\d+", match[end]) for end in ("low", "high"))
    points = POINTS if match["points"] is None else int(match["points"])
    return NumberRange(float(match["low"]), float(match["high"]), match["log"] is not None, points, whole)


# Methods whose learning rate is an argument of their own → that argument, and a factor
RATE_ARGUMENTS: Mapping[str, tuple[str, float]] = {
    "perfedavg": ("outer_lr", 1.0),
    "pfedme": ("outer_lr", 1 / 15),  # its step is outer_lr times λ, which is 15 by default
}


def named_axes(space: object, what: str) -> Mapping[str, Value]:
    """Return a search space if it is one: a dict whose keys are names.

    Args:
        space: What was given as a search space.
        what: What the message calls it.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(space, Mapping) and all(isinstance(name, str) for name in space):
        return space
    raise UsageError(
        f"{what} = {space!r}: it must map the names of arguments to values, such as {{'mu': [0.01, 0.1]}}"
    )


def axis_values(keyword: str, axis: Value) -> list[Value]:
    """Return the values of one axis of a grid.

    Args:
        keyword: The argument, or the field of the configuration, for messages.
        axis: A list, a range such as "1e-4..1:log", or what `ray.tune.grid_search` makes of a list.

    Raises:
        UsageError: It is something else, or a list without values.
    """
    if (interval := number_range(axis)) is not None:
        return list(interval.values())
    if isinstance(axis, Mapping) and set(axis) == {"grid_search"}:
        axis = axis["grid_search"]
    if not isinstance(axis, list | tuple):
        raise UsageError(f"{keyword} = {axis!r}: it must be a list of values, such as [0.01, 0.1]")
    if not axis:
        raise UsageError(f"{keyword} = []: without a value nothing can be tried; name one, or leave it out")
    return list(axis)

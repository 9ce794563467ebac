"""Metrics of the user's own, by reference: functions of scores and labels.

This module imports neither torch nor Ray.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar, overload

from raffed.errors import UsageError, check_choice
from raffed.own.names import OwnFunction, mark_of, marked, own_function
from raffed.own.user_code import user_errors

if TYPE_CHECKING:
    from torch import Tensor

GROUP: Final = "raffed.metrics"  # of entry points
KIND: Final = "metric"
FRACTION: Final = "fraction"
BETTER: Final = ("higher", "lower", "neither")
Better = Literal["higher", "lower", "neither"]
F = TypeVar("F")
NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class MetricMark:
    """What `@raffed.metric` says about a function.

    Attributes:
        name: The word in the column `metric`; "" for the name of the function.
        better: Which direction is an improvement.
        unit: Unit of the values. A "fraction" lies in [0, 1] and is shown in per cent.
    """

    name: str = ""
    better: Better = "higher"
    unit: str = "number"


@overload
def metric(function: F, /) -> F: ...
@overload
def metric(*, name: str = "", better: Better = "higher", unit: str = "number") -> Callable[[F], F]: ...
def metric(
    function: F | None = None, /, *, name: str = "", better: Better = "higher", unit: str = "number"
) -> F | Callable[[F], F]:
    """Mark a function as a metric, and say its name, direction and unit.

    Args:
        function: Function from (scores [n, C], labels [n]) to a number; scores are the network's outputs
            before softmax. The decorator is written without brackets if nothing else is given.
        name: The word in the column `metric`, of small letters, digits and _; without it the function's name.
        better: Which direction is an improvement: "higher", "lower" or "neither".
        unit: Unit of the values. A "fraction" lies in [0, 1] and is shown in per cent.

    Returns:
        The function, unchanged.

    Raises:
        UsageError: A word is not possible.

    Example:
        @raffed.metric(unit="fraction")
        def top2(scores, labels):
            return (scores.topk(2).indices == labels[:, None]).any(1).float().mean()
    """
    check_choice("better", better, BETTER)
    if name and not NAME.fullmatch(name):
        raise UsageError(f"metric {name!r}: a name has small letters, digits and _, and begins with a letter")

    def decorated(unmarked: F) -> F:
        return marked(unmarked, KIND, MetricMark(name, better, unit))

    return decorated if function is None else decorated(function)


@dataclass(frozen=True)
class OwnMetric:
    """A metric of the user's own.

    Attributes:
        function: Where it is.
        name: The word in the column `metric`.
        better: Which direction is an improvement.
        unit: Unit of the values.
        meaning: The first line of its docstring, or its reference.
    """

    function: OwnFunction
    name: str
    better: Better
    unit: str
    meaning: str

    def measure(self, scores: Tensor, labels: Tensor) -> float:
        """Return the metric of a model on some samples.

        Args:
            scores: Outputs of the network before softmax [n, C], float32 on the CPU.
            labels: Labels [n], int64.

        Returns:
            The value; NaN without samples.

        Raises:
            UsageError: The function does not give a number, or a fraction outside [0, 1]. The message begins
                with its file and line.
            UserCodeError: The function raised an error.
        """
        if not len(labels):
            return math.nan
        with user_errors(self.function.where):
            value = self.function.load()(scores, labels)
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise UsageError(
                f"{self.function.where}: the metric {self.name} gave a {type(value).__name__}; it must give "
                f"one number"
            ) from None
        if self.unit == FRACTION and not (math.isnan(number) or 0.0 <= number <= 1.0):
            raise UsageError(
                f"{self.function.where}: the metric {self.name} gave {number}; a fraction lies in [0, 1]"
            )
        return number

    def described(self) -> Mapping[str, str]:
        """Return what run.json says about it."""
        return {
            "name": self.name,
            "better": self.better,
            "unit": self.unit,
            "meaning": self.meaning,
            "reference": self.function.name,
        }


def metric_function(typed: str) -> OwnFunction:
    """Return where a metric is.

    Raises:
        UsageError: The name is neither an entry point nor a reference.
    """
    return own_function(KIND, typed, GROUP)


def own_metric(typed: str) -> OwnMetric:
    """Return the metric that a reference or an entry point names.

    Raises:
        UsageError: There is none, or its name cannot be that of a metric.
        UserCodeError: The user's file raised an error while it was imported.
    """
    where = metric_function(typed)
    function = where.load()
    said = mark_of(function, KIND, MetricMark())
    name = said.name or function.__name__
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{where.where}: the metric {name!r} needs a name of small letters, digits and _: "
            f"@raffed.metric(name=...)"
        )
    meaning = (inspect.getdoc(function) or typed).partition("\n")[0]
    return OwnMetric(where, name, said.better, said.unit, meaning)


def own_metrics(listed: str) -> tuple[OwnMetric, ...]:
    """Return the metrics that a configuration lists, separated by commas.

    Raises:
        UsageError: One does not exist, or two have the same name.
    """
    metrics = tuple(own_metric(name) for name in names_in(listed))
    for at, new in enumerate(metrics):
        if new.name in (other.name for other in metrics[:at]):
            raise UsageError(f"two metrics are called {new.name!r}; rename one with @raffed.metric(name=...)")
    return metrics


def names_in(listed: str) -> list[str]:
    """Return the names in a list that is separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))

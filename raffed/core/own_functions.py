"""Losses and metrics of the user's own, by reference.

A loss is a function of logits and labels in the place of the cross-entropy. A metric is a function of scores
and labels. This module imports neither torch nor Ray until a loss is tried.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar, overload

from raffed.config.validation import Value, check_call
from raffed.errors import UsageError, check_choice
from raffed.own.names import OwnFunction, mark_of, marked, own_function
from raffed.own.user_code import user_errors

if TYPE_CHECKING:
    from torch import Tensor

    from raffed.core.losses import Criterion


LOSS_GROUP: Final = "raffed.losses"  # of entry points
LOSS_KIND: Final = "loss"
COUNTS: Final = "class_counts"
TRIED: Final = 4  # samples of the batch on which a loss is tried
Function = TypeVar("Function")


def loss(function: Function) -> Function:
    """Mark a function as a loss. A function in one's own files needs no mark.

    Args:
        function: Function from (logits [B, C], labels [B]) to a loss for each sample [B], or to their mean
            []. If it has a parameter `class_counts`, it also gets the client's training samples of each class
            [C].

    Returns:
        The function, unchanged.

    Example:
        @raffed.loss
        def focal(logits, labels, gamma: float = 2.0):
            nll = -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
            return (1 - (-nll).exp()) ** gamma * nll
    """
    return marked(function, LOSS_KIND, True)


def loss_function(name: str) -> OwnFunction:
    """Return where a loss is.

    Raises:
        UsageError: The name is neither an entry point nor a reference.
    """
    return own_function(LOSS_KIND, name, LOSS_GROUP)


def criterion_of(name: str, args: Mapping[str, Value]) -> Criterion:
    """Return a loss, with its arguments.

    Args:
        name: A reference or an entry point.
        args: Its arguments, other than logits, labels and class counts.

    Raises:
        UsageError: There is no such function, or the arguments do not fit.
    """
    from raffed.core.losses import Criterion

    reference = loss_function(name)
    function = reference.load()
    wanted = list(inspect.signature(function).parameters)
    if len(wanted) < 2 or COUNTS in wanted[:2]:
        raise UsageError(
            f"{reference.where}: a loss takes logits and labels first; {name} takes "
            f"{', '.join(wanted) or 'nothing'}"
        )
    check_call(f"loss {name!r}", function, (*wanted[:2], COUNTS), args, "--loss-arg")
    return Criterion(functools.partial(function, **args), name, COUNTS in wanted)


def check_loss(name: str, args: Mapping[str, Value], classes: int, *, stacked: bool) -> None:
    """Try a loss on a small batch, so that one that cannot be trained is refused before anything starts.

    Args:
        name: A reference or an entry point.
        args: Its arguments.
        classes: Number of classes C.
        stacked: Whether clients are stacked, so that the loss is called under vmap.

    Raises:
        UsageError: The function does not give a finite loss with a gradient, or it draws random numbers.
        UserCodeError: The function raised an error.
    """
    import torch
    from torch.func import vmap

    criterion, reference = criterion_of(name, args), loss_function(name)
    logits = torch.linspace(-1.0, 1.0, TRIED * classes).view(TRIED, classes).requires_grad_()
    y, counts = torch.arange(TRIED) % classes, torch.arange(classes) + 1
    before = torch.get_rng_state()
    with user_errors(reference.where):
        given = {COUNTS: counts} if criterion.counted else {}
        value = criterion.function(logits, y, **given)
        why = _fault(value)
        if not why and stacked:
            together: Callable[..., Tensor] = vmap(criterion)
            together(*(torch.stack([tensor, tensor]) for tensor in (logits, y, counts)))
    if not why and not torch.equal(before, torch.get_rng_state()):
        why = "draws from torch's global generator, so that no run could be repeated"
    if why:
        raise UsageError(f"{reference.where}: the loss {name} {why}")


def _fault(value: Tensor | float) -> str:
    """Return why a value cannot be the loss of the batch that is tried; empty if it can."""
    import torch

    if not isinstance(value, torch.Tensor):
        return f"gave a {type(value).__name__}; it must give a tensor"
    if value.shape not in ((), (TRIED,)):
        shape = tuple(value.shape)
        return f"gave the shape {shape} for {TRIED} samples; it must give ({TRIED},) or their mean, ()"
    if not value.requires_grad:
        return "gave a value without a gradient; compute it from the logits with torch"
    if not bool(value.isfinite().all()):
        return f"gave {value.detach().tolist()}, which is not finite"
    return ""


METRIC_GROUP: Final = "raffed.metrics"  # of entry points
METRIC_KIND: Final = "metric"
FRACTION: Final = "fraction"
BETTER: Final = ("higher", "lower", "neither")
Better = Literal["higher", "lower", "neither"]
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
def metric(function: Function, /) -> Function: ...
@overload
def metric(
    *, name: str = "", better: Better = "higher", unit: str = "number"
) -> Callable[[Function], Function]: ...
def metric(
    function: Function | None = None, /, *, name: str = "", better: Better = "higher", unit: str = "number"
) -> Function | Callable[[Function], Function]:
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

    def decorated(unmarked: Function) -> Function:
        return marked(unmarked, METRIC_KIND, MetricMark(name, better, unit))

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
    return own_function(METRIC_KIND, typed, METRIC_GROUP)


def own_metric(typed: str) -> OwnMetric:
    """Return the metric that a reference or an entry point names.

    Raises:
        UsageError: There is none, or its name cannot be that of a metric.
        UserCodeError: The user's file raised an error while it was imported.
    """
    where = metric_function(typed)
    function = where.load()
    said = mark_of(function, METRIC_KIND, MetricMark())
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

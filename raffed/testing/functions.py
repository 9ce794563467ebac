"""The contracts of losses, metrics, schedules and selections: functions that a run calls again and again."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from raffed.config.federation import FIXED, Federation
from raffed.config.training import Local, Schedule
from raffed.config.validation import Value
from raffed.core.losses import Criterion
from raffed.core.own_functions import OwnMetric, criterion_of, own_metric
from raffed.core.training.rates import schedule_of
from raffed.errors import UsageError
from raffed.federation.selection import (
    Draw,
    OwnRule,
    check_own_arguments,
    chosen,
    chosen_by_own,
    own_selection,
)
from raffed.own.user_code import UserCodeError
from raffed.testing.contract import Findings, FunctionContract, NotApplicableError, PureContract, named, typed

Loss: TypeAlias = Callable[..., Tensor]
Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor | float]
Batch: TypeAlias = tuple[Tensor, Tensor]  # scores [n, C] and labels [n]

CLASSES = 5
SAMPLES = 15
CLOSE = 1e-4  # float32: a stack of clients and the clients one by one, and sums in another order
SURE = 200.0  # scores whose softmax has zeros in float32


def example_batch(samples: int = SAMPLES, classes: int = CLASSES) -> Batch:
    """Return scores [n, C] of a network that is sometimes right, and labels [n].

    Every class occurs if there are enough samples.
    """
    generator = torch.Generator().manual_seed(7)
    scores = 2.0 * torch.randn(samples, classes, generator=generator)
    return scores, torch.arange(samples) * (classes // 2) % classes


def sure_batch(size: float, classes: int = CLASSES) -> Batch:
    """Return scores [n, C] that are `size` for the label and 0 for the other classes, and labels [n].

    Args:
        size: How sure the network is; below 0 it is wrong everywhere.
        classes: Number of classes C.
    """
    labels = example_batch(classes=classes)[1]
    return size * (labels[:, None] == torch.arange(classes)).to(torch.float32), labels


@dataclass(frozen=True)
class LossContract(PureContract[Batch, Tensor]):
    """A loss, with its arguments: a dense function of logits and labels that clients can be trained by."""

    criterion: Criterion

    kind = "loss"

    def examples(self) -> Sequence[Batch]:
        """Return one batch."""
        return [example_batch()]

    def call(self, arguments: Batch, counts: Tensor | None = None) -> Tensor:
        """Return what the function itself gives for logits [B, C] and labels [B]."""
        every_class = torch.arange(CLASSES) + 1 if counts is None else counts
        given = {"class_counts": every_class} if self.criterion.counted else {}
        return self.criterion.function(*arguments, **given)

    def mean(self, batch: Batch, counts: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch, as training uses it."""
        losses = self.call(batch, counts)
        return losses.mean() if losses.dim() else losses

    def slope(self, batch: Batch, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch [], and its gradient [B, C]."""
        logits = batch[0].clone().requires_grad_()
        value = self.mean((logits, batch[1]), counts)
        return value, torch.autograd.grad(value, logits)[0]

    def fault(self, batch: Batch, counts: Tensor | None = None) -> str:
        """Return why the loss of a batch or its gradient is not finite; "" if both are."""
        value, slope = self.slope(batch, counts)
        if not bool(value.isfinite()):
            return f"the loss is {value.item()}"
        return "" if bool(slope.isfinite().all()) else "the gradient is not finite"

    def check_returns_losses(self) -> str:
        """It returns a finite loss for each sample, or their mean, with a gradient."""
        logits, labels = example_batch()
        value = self.call((logits.requires_grad_(), labels))
        if not issubclass(type(value), Tensor):
            return f"a {type(value).__name__} is returned; it must be a tensor"
        if value.shape not in ((), (SAMPLES,)):
            return f"the shape {list(value.shape)} is returned; it must be [{SAMPLES}], or [] for the mean"
        if not value.requires_grad:
            return "the value has no gradient; compute it with torch, without .item() or .detach()"
        return self.fault(example_batch())

    def check_right_is_lower(self) -> str:
        """Right scores have a lower loss than wrong ones."""
        right, wrong = (self.mean(sure_batch(size)).item() for size in (4.0, -4.0))
        if right < wrong:
            return ""
        return f"right scores have the loss {right:.4g} and wrong ones {wrong:.4g}; look at the sign"

    def check_finite_when_sure(self) -> str:
        """Loss and gradient are finite where a network is sure."""
        for what, size in (("right", SURE), ("wrong", -SURE)):
            if why := self.fault(sure_batch(size)):
                return f"{why} where a network is sure and {what}; use log_softmax, not log of softmax"
        return ""

    def check_one_sample(self) -> str:
        """A batch may have one sample."""
        why = self.fault(example_batch(1))
        return f"{why} in a batch of one sample; the last batch of an epoch may be that short" if why else ""

    def check_absent_classes(self) -> str:
        """A client may lack classes."""
        if not self.criterion.counted:
            raise NotApplicableError("it does not ask for class_counts")
        batch = example_batch(4)[0], torch.zeros(4, dtype=torch.int64)
        counts = (torch.arange(CLASSES) == 0).to(torch.int64) * 4
        why = self.fault(batch, counts)
        if not why and not bool(self.slope(batch, counts)[1].any()):
            why = "the gradient is 0"
        return f"{why} for a client with one class; a count of 0 must divide nothing" if why else ""

    def check_stackable(self) -> str:
        """Losses of several clients can be computed as one stack."""
        scores, labels = (tensor.reshape(3, 5, *tensor.shape[1:]) for tensor in example_batch())
        counts = torch.arange(3 * CLASSES).view(3, CLASSES) + 1
        together: Loss = vmap(self.criterion)
        try:
            stacked = together(scores, labels, counts)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            return f"vmap refuses it ({reason}); replace branches and .item() by torch.where"
        clients = zip(scores, labels, counts, strict=True)
        alone = torch.stack([self.criterion(*client) for client in clients])
        same = torch.allclose(stacked, alone, rtol=CLOSE, atol=CLOSE, equal_nan=True)
        return "" if same else "a stack of clients has other losses than the clients one by one"


def check_loss(
    loss: str | Loss, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a loss: its values, its gradient, and whether clients with it can be stacked.

    Args:
        loss: A reference such as "mylab.losses:focal", an entry point, or the function.
        args: Its arguments, other than logits, labels and class counts.
        name: What messages call the loss.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such loss, or it does not take these arguments.

    Example:
        >>> check_loss("mylab.losses:focal", {"gamma": 1.0}).ok  # doctest: +SKIP
        True
    """
    return LossContract(criterion_of(typed(loss), args or {})).findings(name or named(loss))


@dataclass(frozen=True)
class MetricContract(PureContract[Batch, float]):
    """A metric: one number that depends on scores and labels alone.

    It is checked with two classes if it does not take more, as the area under a ROC curve.
    """

    own: OwnMetric
    classes: int = CLASSES

    kind = "metric"

    def call(self, arguments: Batch) -> float:
        """Return the metric of scores [n, C] and labels [n]; a number outside its unit is an error."""
        return self.own.measure(*arguments)

    def examples(self) -> Sequence[Batch]:
        """Return one batch."""
        return [example_batch(classes=self.classes)]

    def check_one_number(self) -> str:
        """It returns one finite number, and a fraction lies in [0, 1]."""
        value = self.call(self.examples()[0])
        return "" if math.isfinite(value) else f"{value} is returned for samples of every class"

    def check_finite_when_sure(self) -> str:
        """The number is finite where a network is sure."""
        for size in (5.0, -5.0, 0.0):
            value = self.call(sure_batch(size, self.classes))
            if math.isinf(value):
                return f"{value} is returned where a network is sure"
        return ""

    def check_direction(self) -> str:
        """Right scores are better than wrong ones, in the direction that it states."""
        if self.own.better == "neither":
            raise NotApplicableError("no direction is an improvement")
        right, wrong = (self.call(sure_batch(size, self.classes)) for size in (5.0, -5.0))
        better = right > wrong if self.own.better == "higher" else right < wrong
        if better or math.isnan(right) or math.isnan(wrong):
            return ""
        other = "lower" if self.own.better == "higher" else "higher"
        return (
            f"right scores give {right:.4g} and wrong ones {wrong:.4g}, and {self.own.better} is said to be "
            f"better; write @raffed.metric(better={other!r}), or look at the sign"
        )

    def check_one_sample(self) -> str:
        """A client may have one sample."""
        self.call(example_batch(1, self.classes))
        return ""

    def check_one_class(self) -> str:
        """A client may have samples of one class only; NaN stands for an unknown number."""
        self.call((self.examples()[0][0], torch.zeros(SAMPLES, dtype=torch.int64)))
        return ""

    def check_any_order(self) -> str:
        """The order of the samples does not matter."""
        scores, labels = self.examples()[0]
        value, reverse = self.call((scores, labels)), self.call((scores.flip(0), labels.flip(0)))
        unknown = math.isnan(value) and math.isnan(reverse)
        if unknown or math.isclose(value, reverse, rel_tol=CLOSE, abs_tol=CLOSE):
            return ""
        return f"the samples in reverse order give {reverse:.6g} instead of {value:.6g}"


def check_metric(metric: str | Measure, *, name: str | None = None) -> Findings:
    """Check a metric: its numbers, its direction, and that it depends on scores and labels alone.

    Args:
        metric: A reference such as "mylab.metrics:top2", an entry point, or the function.
        name: What messages call the metric.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such metric.

    Example:
        >>> check_metric("mylab.metrics:top2").ok  # doctest: +SKIP
        True
    """
    resolved, title = own_metric(typed(metric)), name or named(metric)
    if _takes(resolved, CLASSES) or not _takes(resolved, 2):
        return MetricContract(resolved).findings(title)
    note = "checked with two classes, because it raises an error for five"
    return replace(MetricContract(resolved, 2).findings(title), notes=(note,))


def _takes(metric: OwnMetric, classes: int) -> bool:
    """Return whether a metric raises no error for samples of so many classes."""
    try:
        with contextlib.suppress(UsageError):  # a number outside its unit, which a check reports
            metric.measure(*example_batch(classes=classes))
    except UserCodeError:
        return False
    return True


LENGTHS = (1, 2, 7, 100)  # numbers of units in a whole run


@dataclass(frozen=True)
class ScheduleContract(FunctionContract[tuple[int, int], float]):
    """A schedule, with its arguments: a factor that depends on how far training is, and on nothing else."""

    schedule: Schedule

    kind = "schedule"

    def remedy(self) -> str:
        """Return what the factor may depend on."""
        return "compute it from `done` and `total`, since a run that is resumed asks for later ones first"

    def examples(self) -> Sequence[tuple[int, int]]:
        """Return every unit of runs of several lengths."""
        return [(done, total) for total in LENGTHS for done in range(total)]

    def call(self, arguments: tuple[int, int]) -> float:
        """Return the factor after `done` of `total` units."""
        return self.schedule(*arguments)

    def check_returns_factors(self) -> str:
        """It returns a finite number of 0 or more, in a run of any length, also of one round."""
        for done, total in self.examples():
            factor = self.schedule(done, total)
            if not isinstance(factor, int | float) or not math.isfinite(factor) or factor < 0:
                return f"{factor!r} is returned for done = {done}, total = {total}; it must be 0 or more"
        return ""

    def check_trains(self) -> str:
        """The rate is not 0 throughout a run."""
        for total in LENGTHS:
            if not any(self.schedule(done, total) for done in range(total)):
                return f"every factor of a run of {total} is 0; write done / total, not done // total"
        return ""


def check_schedule(
    schedule: str | Schedule, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a schedule of the learning rate.

    Args:
        schedule: A reference such as "mylab.rates:halves", a name such as "cosine", or the function.
        args: Its arguments, other than `done` and `total`.
        name: What messages call the schedule.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such schedule, or it does not take these arguments.

    Example:
        >>> check_schedule("cosine", {"lowest": 0.1}).ok
        True
    """
    local = Local(schedule=typed(schedule), schedule_args=args or {})
    return ScheduleContract(schedule_of(local)).findings(name or named(schedule))


SIZES = (40, 7, 100, 25, 3, 60, 18, 80, 12, 55)  # training samples of ten clients
COUNTS = (1, 3, len(SIZES))  # participants that a run asks for
ROUNDS = 5


@dataclass(frozen=True)
class SelectionContract(PureContract[tuple[int, list[int]], list[int]]):
    """A selection: clients that exist, drawn from the generator of the round alone.

    Attributes:
        choose: It, with its arguments.
        fixed: Whether it lists the clients of one federation.
    """

    choose: Callable[[Draw], list[int]]
    fixed: bool

    kind = "selection"

    def remedy(self) -> str:
        """Return what the clients may depend on."""
        return (
            "use `round` and draw from `generator`, since a run that is resumed asks for later rounds first"
        )

    def examples(self) -> Sequence[tuple[int, list[int]]]:
        """Return a few rounds, and the sizes of the clients."""
        return [(round, list(SIZES)) for round in range(ROUNDS)]

    def call(self, arguments: tuple[int, list[int]], count: int = 3) -> list[int]:
        """Return the clients of a round, among clients of these sizes."""
        round, sizes = arguments
        return self.choose(Draw(round, sizes, count, np.random.default_rng([0, round]), _losses))

    def check_clients_exist(self) -> str:
        """It returns one or more clients that exist, however many are asked for."""
        self._require_any_federation()
        for count in COUNTS:
            for round, sizes in self.examples():
                clients = self.call((round, sizes), count)
                if not clients or not all(0 <= client < len(SIZES) for client in clients):
                    return f"{clients} is returned in round {round + 1}; clients are 0 to {len(SIZES) - 1}"
        return ""

    def check_one_client(self) -> str:
        """It works with a single client."""
        self._require_any_federation()
        self.call((0, list(SIZES[:1])), 1)
        return ""

    def _require_any_federation(self) -> None:
        if self.fixed:
            raise NotApplicableError("it lists the clients of one federation")


def _losses(clients: Sequence[int]) -> list[float]:
    """Return losses of a model that is worse for some clients; client -1 would be the last one's."""
    return [(7 * client + 3) % 10 / 4 + 0.1 for client in clients]


def check_selection(
    selection: str | OwnRule, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a selection: the clients that it chooses, and that nothing but the round's generator decides.

    Args:
        selection: A reference such as "mylab.rules:largest", a name such as "round_robin", or the function.
        args: Its arguments.
        name: What messages call the selection.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such selection, or it does not take these arguments.

    Example:
        >>> check_selection("round_robin").ok
        True
    """
    federation = Federation(selection=typed(selection), selection_args=args or {})
    if rule := federation.rule():
        choose = partial(chosen, rule)
    else:
        check_own_arguments(federation)
        choose = partial(
            chosen_by_own,
            federation.selection,
            own_selection(federation.selection),
            federation.selection_args,
        )
    return SelectionContract(choose, federation.selection == FIXED).findings(name or named(selection))

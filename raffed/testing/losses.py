"""The contract of a loss: a dense function of logits and labels that clients can be trained by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import vmap

from raffed.config.validation import Value
from raffed.core.losses import Criterion
from raffed.core.training.own_loss import criterion_of
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by, named, typed
from raffed.testing.generators import (
    CLASSES,
    SAMPLES,
    example_labels,
    example_scores,
    global_draws,
    sure_scores,
)

Loss: TypeAlias = Callable[..., Tensor]
CLOSE = 1e-4  # float32: a stack of clients and the clients one by one
SURE = 200.0  # scores whose softmax has zeros in float32


@dataclass(frozen=True)
class LossSubject:
    """A loss to be checked, with its arguments."""

    criterion: Criterion

    def raw(self, logits: Tensor, labels: Tensor, counts: Tensor | None = None) -> Tensor:
        """Return what the function itself gives for logits [B, C] and labels [B]."""
        there = torch.arange(CLASSES) + 1 if counts is None else counts
        given = {"class_counts": there} if self.criterion.counted else {}
        return self.criterion.function(logits, labels, **given)

    def mean(self, logits: Tensor, labels: Tensor, counts: Tensor | None = None) -> Tensor:
        """Return the mean loss of a batch, as training uses it."""
        found = self.raw(logits, labels, counts)
        return found.mean() if found.dim() else found

    def slope(self, logits: Tensor, labels: Tensor, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch [], and its gradient [B, C]."""
        at = logits.clone().requires_grad_()
        value = self.mean(at, labels, counts)
        return value, torch.autograd.grad(value, at)[0]

    def fault(self, logits: Tensor, labels: Tensor, counts: Tensor | None = None) -> str:
        """Return why the loss of a batch or its gradient is not finite; "" if both are."""
        value, slope = self.slope(logits, labels, counts)
        if not bool(value.isfinite()):
            return f"the loss is {value.item()}"
        return "" if bool(slope.isfinite().all()) else "the gradient is not finite"


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
    subject = LossSubject(criterion_of(typed(loss), args or {}))
    return found_by(LOSS_CHECKS, subject, "loss", name or named(loss))


def _values(subject: LossSubject) -> str:
    logits = example_scores().requires_grad_()
    value = subject.raw(logits, example_labels())
    if not issubclass(type(value), Tensor):
        return f"a {type(value).__name__} is returned; it must be a tensor"
    if value.shape not in ((), (SAMPLES,)):
        return (
            f"the shape {list(value.shape)} is returned for {SAMPLES} samples; it must be [{SAMPLES}], or [] "
            "for their mean"
        )
    if not value.requires_grad:
        return (
            "the value has no gradient; compute it from the logits with torch, without .item() or .detach()"
        )
    return subject.fault(logits.detach(), example_labels())


def _right_is_better(subject: LossSubject) -> str:
    labels = example_labels()
    right, wrong = (subject.mean(sure_scores(labels, size), labels).item() for size in (4.0, -4.0))
    if right < wrong:
        return ""
    return f"right scores have the loss {right:.4g} and wrong ones {wrong:.4g}; look at the sign"


def _sure(subject: LossSubject) -> str:
    labels = example_labels()
    for what, size in (("right", SURE), ("wrong", -SURE)):
        if why := subject.fault(sure_scores(labels, size), labels):
            return f"{why} where a network is sure and {what}; use log_softmax, not the logarithm of softmax"
    return ""


def _one_sample(subject: LossSubject) -> str:
    why = subject.fault(example_scores(1), example_labels(1))
    return f"{why} in a batch of one sample; the last batch of an epoch may be that short" if why else ""


def _absent(subject: LossSubject) -> str:
    if not subject.criterion.counted:
        raise NotApplicableError("it does not ask for class_counts")
    labels = torch.zeros(4, dtype=torch.int64)
    counts = (torch.arange(CLASSES) == 0).to(torch.int64) * 4
    why = subject.fault(example_scores(4), labels, counts)
    if not why and not bool(subject.slope(example_scores(4), labels, counts)[1].any()):
        why = "the gradient is 0"
    return f"{why} for a client with one class; a count of 0 must divide nothing" if why else ""


def _generator(subject: LossSubject) -> str:
    return global_draws(lambda: subject.raw(example_scores(), example_labels()))


def _same_twice(subject: LossSubject) -> str:
    one, two = (subject.raw(example_scores(), example_labels()) for _ in range(2))
    return "" if torch.equal(one, two) else "two calls with one batch differ; keep nothing between calls"


def _inputs(subject: LossSubject) -> str:
    logits, labels = example_scores(), example_labels()
    subject.raw(logits, labels)
    same = torch.equal(logits, example_scores()) and torch.equal(labels, example_labels())
    return "" if same else "it changes its logits or labels in place; make new tensors"


def _stackable(subject: LossSubject) -> str:
    halves = [one.reshape(3, 5, *one.shape[1:]) for one in (example_scores(), example_labels())]
    counts = torch.arange(3 * CLASSES).view(3, CLASSES) + 1
    together: Loss = vmap(subject.criterion)
    try:
        found = together(*halves, counts)
    except RuntimeError as error:
        return f"vmap refuses it ({str(error).splitlines()[0]}); replace branches and .item() by torch.where"
    alone = torch.stack([subject.criterion(*one) for one in zip(*halves, counts, strict=True)])
    same = torch.allclose(found, alone, rtol=CLOSE, atol=CLOSE, equal_nan=True)
    return "" if same else "a stack of clients has other losses than the clients one by one"


_LOOKS: tuple[tuple[str, str, Callable[[LossSubject], str]], ...] = (
    ("returns-losses", "It returns a finite loss for each sample, or their mean, with a gradient.", _values),
    ("right-is-lower", "Right scores have a lower loss than wrong ones.", _right_is_better),
    ("finite-when-sure", "Loss and gradient are finite where a network is sure.", _sure),
    ("one-sample", "A batch may have one sample.", _one_sample),
    ("absent-classes", "A client may lack classes.", _absent),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("same-twice", "One batch has the same loss twice.", _same_twice),
    ("inputs-unchanged", "The logits and labels are not changed.", _inputs),
    ("stackable", "Losses of several clients can be computed as one stack.", _stackable),
)
LOSS_CHECKS: tuple[Check[LossSubject], ...] = tuple(Check(*one) for one in _LOOKS)

"""The contract of a metric: one number that depends on scores and labels alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from raffed.core.measures.own_metric import OwnMetric, own_metric
from raffed.testing.findings import Check, Findings, NotApplicableError, found_by, named, typed
from raffed.testing.generators import SAMPLES, example_labels, example_scores, global_draws, sure_scores

Measure: TypeAlias = Callable[[Tensor, Tensor], Tensor | float]
CLOSE = 1e-4  # relative: sums of float32 in another order


@dataclass(frozen=True)
class MetricSubject:
    """A metric to be checked."""

    own: OwnMetric

    def of(self, scores: Tensor, labels: Tensor) -> float:
        """Return the metric of scores [n, C] and labels [n]; a number outside its unit is an error."""
        return self.own.measure(scores, labels)


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
    subject = MetricSubject(own_metric(typed(metric)))
    return found_by(METRIC_CHECKS, subject, "metric", name or named(metric))


def _number(subject: MetricSubject) -> str:
    value = subject.of(example_scores(), example_labels())
    return "" if math.isfinite(value) else f"{value} is returned for samples of every class"


def _unit(subject: MetricSubject) -> str:
    labels = example_labels()
    for size in (5.0, -5.0, 0.0):
        value = subject.of(sure_scores(labels, size), labels)
        if math.isinf(value):
            return f"{value} is returned where a network is sure"
    return ""


def _direction(subject: MetricSubject) -> str:
    if subject.own.better == "neither":
        raise NotApplicableError("no direction is an improvement")
    labels = example_labels()
    right, wrong = (subject.of(sure_scores(labels, size), labels) for size in (5.0, -5.0))
    better = right > wrong if subject.own.better == "higher" else right < wrong
    if better or math.isnan(right) or math.isnan(wrong):
        return ""
    other = "lower" if subject.own.better == "higher" else "higher"
    return (
        f"right scores give {right:.4g} and wrong ones {wrong:.4g}, and {subject.own.better} is said to be "
        f"better; write @raffed.metric(better={other!r}) or better='neither', or look at the sign"
    )


def _one_sample(subject: MetricSubject) -> str:
    subject.of(example_scores(1), example_labels(1))
    return ""


def _one_class(subject: MetricSubject) -> str:
    subject.of(example_scores(), torch.zeros(SAMPLES, dtype=torch.int64))
    return ""


def _order(subject: MetricSubject) -> str:
    scores, labels = example_scores(), example_labels()
    one, other = subject.of(scores, labels), subject.of(scores.flip(0), labels.flip(0))
    same = math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(one) and math.isnan(other))
    return "" if same else f"the samples in reverse order give {other:.6g} instead of {one:.6g}"


def _generator(subject: MetricSubject) -> str:
    return global_draws(lambda: subject.of(example_scores(), example_labels()))


def _same_twice(subject: MetricSubject) -> str:
    one, two = (subject.of(example_scores(), example_labels()) for _ in range(2))
    same = one == two or (math.isnan(one) and math.isnan(two))
    return "" if same else f"two calls give {one:.6g} and {two:.6g}; keep nothing between calls"


def _inputs(subject: MetricSubject) -> str:
    scores, labels = example_scores(), example_labels()
    subject.of(scores, labels)
    same = torch.equal(scores, example_scores()) and torch.equal(labels, example_labels())
    return "" if same else "it changes its scores or labels in place; another metric would get them so"


_LOOKS: tuple[tuple[str, str, Callable[[MetricSubject], str]], ...] = (
    ("one-number", "It returns one finite number, and a fraction lies in [0, 1].", _number),
    ("finite-when-sure", "The number is finite where a network is sure.", _unit),
    ("direction", "Right scores are better than wrong ones, in the direction that it states.", _direction),
    ("one-sample", "A client may have one sample.", _one_sample),
    (
        "one-class",
        "A client may have samples of one class only; NaN stands for an unknown number.",
        _one_class,
    ),
    ("any-order", "The order of the samples does not matter.", _order),
    ("no-global-generator", "The global random generators are left alone.", _generator),
    ("same-twice", "The same samples give the same number twice.", _same_twice),
    ("inputs-unchanged", "The scores and labels are not changed.", _inputs),
)
METRIC_CHECKS: tuple[Check[MetricSubject], ...] = tuple(Check(*one) for one in _LOOKS)

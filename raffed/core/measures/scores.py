"""What was counted of a model's answers: the one shape of a score, from the counting to the metric rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class ScoreCounts:
    """How well a model answered, in plain numbers, which are cheap to send.

    The counts are integers, so the scores of parts of a test set add up exactly to the score of the whole.

    Attributes:
        correct: Number of correct answers of each class [C].
        total: Number of samples of each class [C].
        predicted: How often each class was the answer [C].
        loss: Sum of the cross-entropy over the samples, in nats. A chunk is summed in float32, and chunks in
            float64.
        observed: Number of correct answers if only observed classes may be the answer.
    """

    correct: tuple[int, ...]
    total: tuple[int, ...]
    predicted: tuple[int, ...]
    loss: float
    observed: int

    @property
    def n(self) -> int:
        """Number of samples."""
        return sum(self.total)

    @property
    def accuracy(self) -> float:
        """Fraction of correct answers in [0, 1], or NaN without samples."""
        return sum(self.correct) / self.n if self.n else math.nan

    @property
    def accuracy_observed(self) -> float:
        """Fraction of correct answers if only classes of the client's training data may be the answer."""
        return self.observed / self.n if self.n else math.nan

    @property
    def macro_f1(self) -> float:
        """Mean of 2·correct / (predicted + total) over classes that occur or were predicted.

        It is NaN without samples.
        """
        sums = [p + t for p, t in zip(self.predicted, self.total, strict=True)]
        scores = [2 * c / both for c, both in zip(self.correct, sums, strict=True) if both]
        return sum(scores) / len(scores) if scores else math.nan

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy in nats, or NaN without samples."""
        return self.loss / self.n if self.n else math.nan

    @property
    def by_class(self) -> list[tuple[float, int]]:
        """For each class, its accuracy and its number of samples. The accuracy is NaN without samples."""
        pairs = zip(self.correct, self.total, strict=True)
        return [(correct / count if count else math.nan, count) for correct, count in pairs]

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        """Return the counts of two parts of a test set together."""
        return self._with(other, operator.add, self.loss + other.loss)

    def __sub__(self, part: ScoreCounts) -> ScoreCounts:
        """Return the counts of a test set without one of its parts."""
        return self._with(part, operator.sub, self.loss - part.loss)

    def _with(self, other: ScoreCounts, join: Callable[[int, int], int], loss: float) -> ScoreCounts:
        def each(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(join(a, b) for a, b in zip(left, right, strict=True))

        return ScoreCounts(
            each(self.correct, other.correct),
            each(self.total, other.total),
            each(self.predicted, other.predicted),
            loss,
            join(self.observed, other.observed),
        )


class ExtraMeasure(NamedTuple):
    """A measurement that is not a score, and the number of values that it is the mean of."""

    value: float
    n: int


class ClientScores(NamedTuple):
    """What was measured of the models of one client.

    Attributes:
        models: Scores on its local test part, by model. After a round these are the downloaded model
            ("global"), the trained one ("local") and the personalised one ("personal"). If the privately
            trained model differs from these, it is scored too ("private").
        validation: Score of the personalised model on its validation part, or None if it has none.
        stages: If data come in stages, scores of the personalised model on the test part of each stage so
            far.
        extra: Additional measurements of the trained model, by metric.
        own: Values of the user's own metrics of the personalised model, by split and metric.
        strengths: Strengths of the method's terms in its training, by model and term.
    """

    models: dict[str, ScoreCounts]
    validation: ScoreCounts | None = None
    stages: tuple[ScoreCounts, ...] = ()
    extra: Mapping[str, ExtraMeasure] = {}
    own: Mapping[tuple[str, str], ExtraMeasure] = {}
    strengths: Mapping[tuple[str, str], ExtraMeasure] = {}


NO_SCORES = ClientScores({})

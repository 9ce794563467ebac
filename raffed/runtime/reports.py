"""What clients report after training and evaluation: counts per class, losses and times."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ScoreCounts:
    """A `Score` (core/measures/accuracy.py) as plain numbers, which are cheap to send.

    The counts of parts of a test set can be added.
    """

    correct: tuple[int, ...]
    total: tuple[int, ...]
    predicted: tuple[int, ...]
    loss: float
    observed: int

    @property
    def n(self) -> int:
        return sum(self.total)

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / self.n if self.n else float("nan")

    @property
    def accuracy_observed(self) -> float:
        """Fraction of correct answers if only classes of the client's training data may be the answer."""
        return self.observed / self.n if self.n else float("nan")

    @property
    def macro_f1(self) -> float:
        """Mean of 2·correct / (predicted + total) over classes that occur or were predicted.

        It is NaN without samples.
        """
        sums = [p + t for p, t in zip(self.predicted, self.total, strict=True)]
        scores = [2 * c / both for c, both in zip(self.correct, sums, strict=True) if both]
        return sum(scores) / len(scores) if scores else float("nan")

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        def both(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + b for a, b in zip(mine, theirs, strict=True))

        return ScoreCounts(
            both(self.correct, other.correct),
            both(self.total, other.total),
            both(self.predicted, other.predicted),
            self.loss + other.loss,
            self.observed + other.observed,
        )

    def __sub__(self, part: ScoreCounts) -> ScoreCounts:
        """Return the counts of a test set without one of its parts."""

        def left(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a - b for a, b in zip(mine, theirs, strict=True))

        return ScoreCounts(
            left(self.correct, part.correct),
            left(self.total, part.total),
            left(self.predicted, part.predicted),
            self.loss - part.loss,
            self.observed - part.observed,
        )


class ExtraMeasure(NamedTuple):
    """An additional measurement (`federation.measures`), and the number of values that it is the mean of."""

    value: float
    n: int


class ClientScores(NamedTuple):
    """The last four fields of a Report."""

    scores: dict[str, ScoreCounts]
    validation: ScoreCounts | None
    stages: tuple[ScoreCounts, ...]
    extra: dict[str, ExtraMeasure]


NO_SCORES = ClientScores({}, None, (), {})


@dataclass(frozen=True)
class Report:
    """What a client reports about its round, in addition to its upload. These are metrics only.

    Attributes:
        client: Number of the client.
        n: Its number of training samples.
        loss: Mean loss over the samples seen in shared training.
        steps: Number of steps of shared training.
        bytes_up: Bytes that the method sends to the server.
        bytes_down: Bytes that the method sends to the client.
        seconds: Duration of its local round, without scoring, keeping and sending. Clients of a stack have
            equal shares.
        scores: Scores on its local test part, of the downloaded model ("global"), the trained model
            ("local"), and the personalised model ("personal"). If the privately trained model differs from
            these, it is scored too ("private").
        validation: Score of the personalised model on its validation part, or None if it has none.
        stages: If data come in stages, scores of the personalised model on the test part of each stage so
            far.
        extra: Additional measurements of the trained model, by metric.
    """

    client: int
    n: int
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    validation: ScoreCounts | None = None
    stages: tuple[ScoreCounts, ...] = ()
    extra: dict[str, ExtraMeasure] = field(default_factory=dict)


class Reports(list[Report]):
    """Reports that are sent as plain tuples, for the same reason as an `ActorShare`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return as_reports, (list(map(_FIELDS, self)),)


_FIELDS = operator.attrgetter(*(one.name for one in fields(Report)))


def as_reports(rows: list[tuple[Any, ...]]) -> Reports:
    return Reports(Report(*row) for row in rows)


@dataclass(frozen=True)
class SurveyedClient:
    """A client that was scored between rounds.

    `scores` are on its local test part: "global" for the server's model with all its layers, and "personal"
    for the client's own model (`between_rounds` in core/round.py).
    """

    client: int
    scores: dict[str, ScoreCounts]

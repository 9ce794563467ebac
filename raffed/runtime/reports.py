"""What clients report after training and evaluation: counts per class, losses, times."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ScoreCounts:
    """core.evaluate.Score as plain numbers, so that it travels cheaply; parts of a test set add up."""

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
        """The fraction when only classes of the client's training data may be the answer."""
        return self.observed / self.n if self.n else float("nan")

    @property
    def macro_f1(self) -> float:
        """Mean of 2·correct / (predicted + total) over the classes that are present or were predicted;
        NaN without samples.
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
        """What is left of a test set without a part of it."""

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
    """A number that a run was asked to measure besides (`federation.measures`), and how many it is the
    mean of.
    """

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
    """What a client tells of its round besides the upload: metrics only. Bytes are what the *method* sends.

    `scores`: on its local test part, of the downloaded ("global"), trained ("local") and "personal" model,
    and of the privately trained one where that is yet another ("private"). `validation`: of the personal
    model on its validation part, None where there is none. `stages`: where the data come in stages, of the
    personal model on the test part of each stage so far. `extra`: metric → number, of the trained model.
    `seconds`: of its local round alone, without scoring, keeping and sending; of a stack an equal share.
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
    """Reports that travel as plain tuples, for the reason that a Share does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return as_reports, (list(map(_FIELDS, self)),)


_FIELDS = operator.attrgetter(*(one.name for one in fields(Report)))


def as_reports(rows: list[tuple[Any, ...]]) -> Reports:
    return Reports(Report(*row) for row in rows)


@dataclass(frozen=True)
class SurveyedClient:
    """A client between rounds: `scores` on its local test part of "global", the server's model with all its
    layers, and of "personal", its own (core/round.py, `resting`).
    """

    client: int
    scores: dict[str, ScoreCounts]

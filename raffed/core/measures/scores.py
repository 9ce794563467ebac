"""What was counted of a model's answers, and the measures that a run takes at its end.

Counts have one shape, from the counting to the metric rows. The measures are calibration, fairness, a
client's memory, and the spectrum of features.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from raffed.core.aggregation.exact_sums import plain_mean
from raffed.core.context import ClientData, Context
from raffed.core.messages import Broadcast, count
from raffed.core.method import Method
from raffed.core.round import begin, client_round
from raffed.core.training.phases import make_opening, train
from raffed.core.training.session import Participant, TrainingSession


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
        return plain_mean(scores)

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


# How far a model's confidence is from its accuracy.


BINS = 15


def calibration_error(logits: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error, Σ_b (n_b / n) |accuracy(b) − confidence(b)|.

    Samples are grouped by their confidence, the largest of the softmax of their logits, in bins of equal
    width (i / bins, (i + 1) / bins]. Source: Guo et al. 2017, "On Calibration of Modern Neural Networks",
    eq. 3, with their 15 bins.

    Args:
        logits: Scores [n, C].
        y: Labels [n], int64.
        bins: Number of bins, at least 1.

    Returns:
        A fraction in [0, 1]; NaN without samples.
    """
    if not len(y):
        return math.nan
    confidence, answer = logits.double().softmax(-1).max(-1)
    where = (torch.ceil(confidence * bins).long() - 1).clamp(0, bins - 1)
    right = (answer == y).double()
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, where, right - confidence)
    return float(gaps.abs().sum() / len(y))


# How unequal a model's accuracy is over clients.


def worst_decile(accuracies: Sequence[float]) -> float:
    """Return the mean accuracy of the tenth of the clients with the lowest ones, ⌈N / 10⌉ of N clients.

    Source: Li et al. 2020, "Fair Resource Allocation in Federated Learning" (q-FFL), table 1.

    Args:
        accuracies: The accuracy of each client, fractions in [0, 1].

    Returns:
        A fraction in [0, 1]; NaN without clients.
    """
    return plain_mean(sorted(accuracies)[: math.ceil(len(accuracies) / 10)])


def spread(accuracies: Sequence[float]) -> float:
    """Return the standard deviation over clients, √(1/N Σ (a_i − ā)²).

    Args:
        accuracies: The accuracy of each client, fractions in [0, 1].

    Returns:
        A fraction in [0, 0.5]; NaN without clients.
    """
    mean = plain_mean(accuracies)
    return math.sqrt(plain_mean([(accuracy - mean) ** 2 for accuracy in accuracies]))


# How many numbers a client holds, found by observing one step of training instead of a table.


COPIES = {"start": "model", "state": "model", "initial": "initial", "w0": "weights", "w": "weights"}


@dataclass(frozen=True)
class Footprint:
    """How many numbers (not bytes) one client holds.

    Batches, activations, gradients and the optimiser are not counted, because they are the same for all
    methods. The state of an optimiser that the client keeps is in `kept`.

    Attributes:
        model: P, the trainable weights and BatchNorm's statistics.
        training: P and what else the shared objective reads during training: the downloaded model, this
            client's memories, the server's messages, and a companion.
        kept: What is kept from one round to the next.
    """

    model: int
    training: int
    kept: int


class _Watched:
    """A Context that records which of its fields are read."""

    def __init__(self, context: Context, asked: set[str]) -> None:
        self._context, self._asked = context, asked

    def __getattr__(self, name: str) -> Any:
        if name == "replace":
            return lambda **changes: _Watched(self._context.replace(**changes), self._asked)
        self._asked.add(name)
        return getattr(self._context, name)


def footprint(m: Method, b: Broadcast, x: torch.Tensor, session: TrainingSession) -> Footprint:
    """Return the footprint of a client at its first participation.

    Args:
        m: The method.
        b: What the server broadcasts.
        x: A few of the client's inputs [n, ...]. They are labelled 0, 1, 0, … for one step of training.
        session: How clients train.
    """
    y = torch.arange(len(x)) % 2
    classes = session.spec.num_classes
    participant = Participant(0, None, ClientData(x, y, torch.bincount(y, minlength=classes)))
    local = replace(session.local, epochs=1e-6, min_steps=1, drop_last=False)
    session = replace(session, local=local)
    visit = begin(m, b, participant, session)
    views = visit.views
    asked: dict[str, set[str]] = {slot: set() for slot in views}
    visit.views = {slot: cast(Context, _Watched(view, asked[slot])) for slot, view in views.items()}
    if m.opening is not None:
        make_opening(m, [visit], session)
    train(m, [visit], session)
    model = count(session.net.initial)
    beside = 0 if visit.companion is None else count(visit.companion)
    once = {COPIES[name] for names in asked.values() for name in names if name in COPIES}
    copies = {"model": model, "initial": model, "weights": count(visit.k.w0)}
    training = (
        model + beside + sum(copies[name] for name in once if not (name == "weights" and "model" in once))
    )
    for slot, view in views.items():
        # A companion starts as the memory and replaces it
        memory = 0 if slot == "personal" and beside else count(view.mine)
        training += memory * ("mine" in asked[slot]) + count(view.server) * ("server" in asked[slot])
    client_state = client_round(m, b, None, participant.data, session, 0).client_state
    return Footprint(model, training, count(client_state) if m.keeps_state else 0)


# How unevenly features fill their space: the variance of the top eigenvalues of a batch.
#
# Source: Fan et al. 2023 (FedMR), Table 7.


BATCH = 128  # samples in a batch, and the paper's constant 1/128
TOP = 50


def eigenvalue_variance(z: Tensor, standardised: bool = True) -> float:
    """Return V = (1/128) Σ_{i ≤ 50} (λ_i − λ̄)² of a batch of features.

    λ_i are the 50 largest eigenvalues of M = ẐᵀẐ/(B − 1), and λ̄ is their mean. If there are fewer than 50
    features, all eigenvalues count. Ẑ is z minus its mean over the batch, with each feature divided by its
    (unbiased) standard deviation. A constant feature becomes a column of zeros. The eigenvalues are computed
    in float64 from the B x B Gram matrix, which has the same eigenvalues except for zeros. V of 512
    standardised features lies in [0, 2007.04].

    Args:
        z: Features [B, D].
        standardised: Whether features are divided by their standard deviation.
    """
    centred = z.double() - z.double().mean(0)
    if standardised:
        deviation = centred.square().sum(0).div(len(z) - 1).sqrt()
        centred = torch.where(deviation > 0, centred / torch.where(deviation > 0, deviation, 1.0), 0.0)
    ascending = torch.linalg.eigvalsh(centred @ centred.T / (len(z) - 1))
    top = ascending[-min(TOP, z.shape[1]) :]
    return float((top - top.mean()).square().sum() / BATCH)


def by_batch(z: Tensor, order: Tensor, standardised: bool = True) -> ExtraMeasure:
    """Return the mean of V over full batches of 128 samples, and the number of batches.

    The mean is NaN if there is no full batch.

    Args:
        z: Features [n, D].
        order: Order [n] in which samples are put into batches.
        standardised: Whether features are divided by their standard deviation.
    """
    variances = [
        eigenvalue_variance(z[index], standardised)
        for index in torch.split(order, BATCH)
        if len(index) == BATCH
    ]
    return ExtraMeasure(plain_mean(variances), len(variances))


def by_class(z: Tensor, y: Tensor, order: Tensor) -> ExtraMeasure:
    """Return the mean over classes of the mean V over batches of one class, and the number of batches.

    Classes with fewer than 128 samples are left out.

    Args:
        z: Features [n, D].
        y: Labels [n].
        order: Order [n] in which samples are put into batches.
    """
    labels = y[order]
    measures = [by_batch(z, order[labels == label]) for label in range(int(y.max()) + 1)]
    means = [mean for mean, count in measures if count]
    return ExtraMeasure(plain_mean(means), sum(count for _, count in measures))

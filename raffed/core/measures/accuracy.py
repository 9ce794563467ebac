"""Counting what a model gets right: integers per class, so that shares of a test set add up exactly
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.params import State
from raffed.core.training.network import Network


@dataclass(frozen=True)
class Score:
    """Per class: correct, total and predicted (how often it was the answer) [C] int64 on the CPU; loss: Σ
    cross-entropy over the samples in nats, of a chunk in float32 and over chunks in float64; observed:
    correct answers when only observed classes may be the answer.
    """

    correct: Tensor
    total: Tensor
    predicted: Tensor
    loss: float
    observed: int

    @property
    def n(self) -> int:
        return int(self.total.sum())

    @property
    def accuracy(self) -> float:
        """Fraction in [0, 1]; NaN without samples."""
        return int(self.correct.sum()) / self.n if self.n else float("nan")


def evaluate(
    net: Network,
    state: State,
    x: Tensor,
    y: Tensor,
    num_classes: int,
    chunk: int,
    observed: Tensor | None = None,
) -> Score:
    """Plain logits over all C classes, argmax; evaluation mode; changes nothing. observed [C] bool: see
    `count`.
    """
    return count(
        ((logits, labels) for logits, _, labels in net.chunks(state, x, y, chunk)), y, num_classes, observed
    )


def count(
    batches: Iterable[tuple[Tensor, Tensor]], y: Tensor, num_classes: int, observed: Tensor | None = None
) -> Score:
    """The score of any predictor: (logits [B, C], labels [B]) batch by batch, y [n] all labels together.

    observed [C] bool: the classes that the second count (`Score.observed`) chooses among; None: all.
    """
    correct = torch.zeros(num_classes, dtype=torch.int64)
    predicted = torch.zeros(num_classes, dtype=torch.int64)
    total = torch.bincount(y.cpu(), minlength=num_classes)
    loss, among = 0.0, 0
    for logits, labels in batches:
        answers = logits.argmax(-1)
        hits = labels[answers == labels]
        correct += torch.bincount(hits.cpu(), minlength=num_classes)
        predicted += torch.bincount(answers.cpu(), minlength=num_classes)
        if observed is not None:
            among += int((logits.masked_fill(~observed, float("-inf")).argmax(-1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    return Score(correct, total, predicted, loss, int(correct.sum()) if observed is None else among)

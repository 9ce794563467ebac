"""Counting what a model gets right: integers per class, so that shares of a test set add up exactly anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.network import Network
from raffed.core.params import State


@dataclass(frozen=True)
class Score:
    """Per class: correct [C] and total [C] int64 on the CPU; loss: Σ cross-entropy over the samples in float64, nats."""

    correct: Tensor
    total: Tensor
    loss: float

    @property
    def n(self) -> int:
        return int(self.total.sum())

    @property
    def accuracy(self) -> float:
        """Fraction in [0, 1]; NaN without samples."""
        return int(self.correct.sum()) / self.n if self.n else float("nan")

    @property
    def mean_loss(self) -> float:
        return self.loss / self.n if self.n else float("nan")

    def __add__(self, other: Score) -> Score:
        return Score(self.correct + other.correct, self.total + other.total, self.loss + other.loss)


def evaluate(net: Network, state: State, x: Tensor, y: Tensor, num_classes: int, chunk: int) -> Score:
    """Plain logits over all C classes, argmax; evaluation mode; changes nothing."""
    return count(((logits, labels) for logits, _, labels in net.chunks(state, x, y, chunk)), y, num_classes)


def count(batches: Iterable[tuple[Tensor, Tensor]], y: Tensor, num_classes: int) -> Score:
    """The score of any predictor: (logits [B, C], labels [B]) batch by batch, y [n] all labels together."""
    correct = torch.zeros(num_classes, dtype=torch.int64)
    total = torch.bincount(y.cpu(), minlength=num_classes)
    loss = 0.0
    for logits, labels in batches:
        hits = labels[logits.argmax(-1) == labels]
        correct += torch.bincount(hits.cpu(), minlength=num_classes)
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    return Score(correct, total, loss)

"""Counting correct answers as integers per class, so that parts of a test set add up exactly."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.measures.scores import ScoreCounts
from raffed.core.params import State
from raffed.core.training.network import Network


def evaluate(
    net: Network,
    state: State,
    x: Tensor,
    y: Tensor,
    num_classes: int,
    chunk: int,
    observed: Tensor | None = None,
) -> ScoreCounts:
    """Score a model in evaluation mode, by the largest of its logits over all C classes.

    Args:
        net: The network. It is not changed.
        state: The model.
        x: Prepared inputs [n, ...].
        y: Labels [n], int64.
        num_classes: Number of classes C.
        chunk: Samples per forward pass.
        observed: Classes for the second count [C] bool, see `count`.
    """
    return count(
        ((logits, labels) for logits, _, labels in net.chunks(state, x, y, chunk)), y, num_classes, observed
    )


def count(
    batches: Iterable[tuple[Tensor, Tensor]], y: Tensor, num_classes: int, observed: Tensor | None = None
) -> ScoreCounts:
    """Score any predictor.

    Args:
        batches: (logits [B, C], labels [B]) batch by batch.
        y: All labels together [n].
        num_classes: Number of classes C.
        observed: The classes [C] bool among which the second count (`ScoreCounts.observed`) chooses, or None
            for all.
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
    right, all_of, answered = (tuple(each.tolist()) for each in (correct, total, predicted))
    return ScoreCounts(right, all_of, answered, loss, sum(right) if observed is None else among)

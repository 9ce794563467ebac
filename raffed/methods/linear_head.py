"""Training an output layer on features, as servers do that retrain the head."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.losses import one_hot


def train_head(
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    lr: float,
    batch: int,
    draws: torch.Generator,
    biased: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return weight [C, D] and bias [C] after plain SGD on the cross-entropy.

    Args:
        weight: The weight to begin with.
        bias: The bias to begin with.
        x: Features [n, D].
        y: Their classes [n], int64.
        epochs: Passes over the features, each in a new order.
        lr: Learning rate.
        batch: Features in a batch. The last one of an epoch may be smaller.
        draws: The random stream of the orders.
        biased: Whether the bias is trained. Otherwise it stays.
    """
    classes = len(weight)
    for _ in range(epochs):
        for index in torch.split(torch.randperm(len(y), generator=draws).to(y.device), batch):
            error = (x[index] @ weight.T + bias).softmax(-1) - one_hot(y[index], classes).to(x.dtype)
            weight = weight - lr * (error.T @ x[index]) / len(index)
            bias = bias - lr * error.mean(0) if biased else bias
    return weight, bias

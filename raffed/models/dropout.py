"""Dropout layers of the networks: a checked probability, and whole samples for stochastic depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raffed.errors import check_range


class Dropout(nn.modules.dropout._DropoutNd):
    """Set each element to 0 with probability p, and divide the others by 1 - p.

    With `rows`, all elements of a sample are kept or dropped together (stochastic depth, Huang et al. 2016).
    In evaluation mode, or with p = 0, the input is returned as it is.

    By itself the layer draws from torch's global generator. In a federation, raffed replaces it by a layer
    that draws from the client's own stream (core/training/seeded_dropout.py).
    """

    def __init__(self, p: float, rows: bool = False) -> None:
        check_range("dropout", p, 0.0, 0.99)
        super().__init__(p)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        size = (len(x), *[1] * (x.dim() - 1)) if self.rows else tuple(x.shape)
        return torch.where(torch.rand(size, device=x.device) >= self.p, x / (1 - self.p), 0.0)

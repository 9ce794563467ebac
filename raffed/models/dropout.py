"""Dropout layers of the networks: a checked probability, and whole samples for stochastic depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raffed.errors import check_range


class Dropout(nn.modules.dropout._DropoutNd):
    """Each element 0 with probability p, else divided by 1 - p; with `rows` a sample's elements share one
    fate (Huang et al. 2016, stochastic depth). Evaluation mode or p = 0: x itself.

    Draws from torch's global generator on its own; in a federation the kernel puts its own layer here, which
    draws from the client's stream (core/training/seeded_dropout.py).
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

"""Our networks: any `nn.Module` that returns one score for each class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Two convolutions with BatchNorm, and a linear layer, which raffed finds to be the head."""

    def __init__(self, in_shape: Sequence[int], num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.one = nn.Conv2d(in_shape[0], width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(8 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [B, C] of images [B, channels, height, width]."""
        found = torch.relu(self.norm(self.one(x)))
        found = self.pool(torch.relu(self.two(found))).flatten(1)
        scores: Tensor = self.fc(self.drop(found))
        return scores

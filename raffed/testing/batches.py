"""Small batches of scores and labels on which losses and metrics are tried."""

from __future__ import annotations

import torch
from torch import Tensor

CLASSES = 5
SAMPLES = 15


def example_scores(samples: int = SAMPLES, classes: int = CLASSES) -> Tensor:
    """Return scores [n, C] of a network that is sometimes right, float32."""
    generator = torch.Generator().manual_seed(7)
    return 2.0 * torch.randn(samples, classes, generator=generator)


def example_labels(samples: int = SAMPLES, classes: int = CLASSES) -> Tensor:
    """Return labels [n], int64, in which every class occurs if there are enough samples."""
    return torch.arange(samples) * 2 % classes


def sure_scores(labels: Tensor, size: float, classes: int = CLASSES) -> Tensor:
    """Return scores [n, C] that are `size` for the label and 0 for the other classes.

    Args:
        labels: Labels [n], int64.
        size: How sure the network is; below 0 it is wrong everywhere.
        classes: Number of classes C.
    """
    return size * (labels[:, None] == torch.arange(classes)).to(torch.float32)


__all__ = ["CLASSES", "SAMPLES", "example_labels", "example_scores", "sure_scores"]

"""How far a model's confidence is from its accuracy."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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


__all__ = ["BINS", "calibration_error"]

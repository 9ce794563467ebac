"""How unevenly features fill their space: the variance of the top eigenvalues of a batch.

Source: Fan et al. 2023 (FedMR), Table 7.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from raffed.core.measures.scores import ExtraMeasure

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
    found = [
        eigenvalue_variance(z[index], standardised)
        for index in torch.split(order, BATCH)
        if len(index) == BATCH
    ]
    return ExtraMeasure(sum(found) / len(found) if found else math.nan, len(found))


def by_class(z: Tensor, y: Tensor, order: Tensor) -> ExtraMeasure:
    """Return the mean over classes of the mean V over batches of one class, and the number of batches.

    Classes with fewer than 128 samples are left out.

    Args:
        z: Features [n, D].
        y: Labels [n].
        order: Order [n] in which samples are put into batches.
    """
    labels = y[order]
    found = [by_batch(z, order[labels == label]) for label in range(int(y.max()) + 1)]
    means = [mean for mean, count in found if count]
    mean = sum(means) / len(means) if means else math.nan
    return ExtraMeasure(mean, sum(count for _, count in found))

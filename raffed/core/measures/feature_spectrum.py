"""How unevenly features fill their space: the variance of a batch's top eigenvalues (Fan et al. 2023,
FedMR, Table 7).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BATCH = 128  # samples of a mini-batch, and the paper's constant 1/128
TOP = 50


def eigenvalue_variance(z: Tensor, standardised: bool = True) -> float:
    """V = (1/128) Σ_{i ≤ 50} (λ_i − λ̄)² of features z [B, D]: λ the 50 largest eigenvalues of M = ẐᵀẐ/(B −
    1), λ̄ their mean.

        Ẑ is z less its mean over the batch, each feature divided by its (unbiased) standard deviation; one
        that does not vary becomes a column of zeros. standardised False: the covariance as it is. From the B
        x B Gram matrix, which has the same eigenvalues and zeros, in float64. Below 50 features all of them
        count. V of 512 standardised features lies in [0, 2007.04].
    """
    centred = z.double() - z.double().mean(0)
    if standardised:
        deviation = centred.square().sum(0).div(len(z) - 1).sqrt()
        centred = torch.where(deviation > 0, centred / torch.where(deviation > 0, deviation, 1.0), 0.0)
    ascending = torch.linalg.eigvalsh(centred @ centred.T / (len(z) - 1))
    top = ascending[-min(TOP, z.shape[1]) :]
    return float((top - top.mean()).square().sum() / BATCH)


def by_batch(z: Tensor, order: Tensor, standardised: bool = True) -> tuple[float, int]:
    """Mean V over the full batches of 128 samples of z [n, D], taken in `order` [n], and how many; NaN
    without one.
    """
    found = [
        eigenvalue_variance(z[index], standardised)
        for index in torch.split(order, BATCH)
        if len(index) == BATCH
    ]
    return (sum(found) / len(found), len(found)) if found else (math.nan, 0)


def by_class(z: Tensor, y: Tensor, order: Tensor) -> tuple[float, int]:
    """Mean over classes of the mean V over batches of one class, and how many batches; y [n]; classes
    below 128 are left out.
    """
    labels = y[order]
    found = [by_batch(z, order[labels == label]) for label in range(int(y.max()) + 1)]
    means = [mean for mean, count in found if count]
    return (sum(means) / len(means), sum(count for _, count in found)) if means else (math.nan, 0)

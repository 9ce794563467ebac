"""Gaussian features: class means and one covariance, their interpolation, and the linear discriminant."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from raffed.core.losses import one_hot

EPSILON = 1e-4  # shrinkage of the covariance, and smoothing of the priors
GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS = 2


class Fit(NamedTuple):
    """Class means [C, D] and a covariance [D, D], float64, and which classes have a mean [C] bool."""

    mean: Tensor
    covariance: Tensor
    known: Tensor


class GaussianHead(NamedTuple):
    """An output layer: weight [C, D] and bias [C], float64."""

    weight: Tensor
    bias: Tensor


def fitted(z: Tensor, y: Tensor, classes: int, ridge: float) -> Fit:
    """Return the statistics of features.

    The covariance is that within classes, Σ (z − μ_y)(z − μ_y)ᵀ/(n − 1), plus the ridge on the diagonal.

    Args:
        z: Features [n, D], float64.
        y: Labels [n].
        classes: Number of classes C.
        ridge: What is added to the diagonal.
    """
    label = one_hot(y, classes).to(z.dtype)
    count = label.sum(0)
    mean = label.T @ z / count.clamp(min=1)[:, None]
    gap = z - mean[y]
    eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    return Fit(mean, gap.T @ gap / max(len(y) - 1, 1) + ridge * eye, count > 0)


def interpolated(local: Fit, shared: Fit, of_means: float, of_covariance: float) -> Fit:
    """Return β · local + (1 − β) · global. A class that one side does not know has the other side's mean."""
    mean = of_means * local.mean + (1.0 - of_means) * shared.mean
    mean = torch.where(shared.known[:, None], mean, local.mean)
    mean = torch.where(local.known[:, None], mean, shared.mean)
    covariance = of_covariance * local.covariance + (1.0 - of_covariance) * shared.covariance
    return Fit(mean, covariance, local.known | shared.known)


def discriminant(fit: Fit, log_priors: Tensor, epsilon: float = EPSILON) -> GaussianHead:
    """Return the linear discriminant: a_c = Σ'⁻¹ μ_c, b_c = −½ μ_cᵀ a_c + log π_c.

    Σ' = (1 − ε) Σ + ε (tr Σ/D) I. Its softmax is the posterior of the classes under these Gaussians. A class
    without a mean gets the mean of the others.

    Args:
        fit: The statistics.
        log_priors: log π [C].
        epsilon: ε, the shrinkage.
    """
    known = fit.known.to(fit.mean.dtype)[:, None]
    middle = (known * fit.mean).sum(0) / known.sum().clamp(min=1)
    mean = torch.where(fit.known[:, None], fit.mean, middle)
    width = mean.shape[1]
    eye = torch.eye(width, dtype=mean.dtype, device=mean.device)
    shrunk = (1.0 - epsilon) * fit.covariance + epsilon * fit.covariance.trace() / width * eye
    weight = torch.linalg.solve(shrunk, mean.T).T
    return GaussianHead(weight, -0.5 * (mean * weight).sum(1) + log_priors.to(mean.dtype))


def log_prior(class_counts: Tensor) -> Tensor:
    """Return log π [C], float64: class frequencies, with 1e-4 added to each, divided by their sum."""
    counts = class_counts.double()
    smoothed = counts / counts.sum().clamp(min=1) + EPSILON
    return (smoothed / smoothed.sum()).log()


def cross_validated(
    z: Tensor, y: Tensor, shared: Fit, log_priors: Tensor, *, separate: bool, ridge: float
) -> tuple[float, float]:
    """Return the β of the means and of the covariance with the smallest cross-entropy in two folds.

    In each class the samples go to the folds in turn; a class of one sample is left out. Of equally good
    values the smallest are taken. Without two samples of a class both are 0.

    Args:
        z: Features [n, D], float64.
        y: Labels [n].
        shared: The global statistics.
        log_priors: log π [C] of the client.
        separate: Whether the two may differ.
        ridge: What is added to the diagonal of a covariance.
    """
    classes = len(log_priors)
    label = one_hot(y, classes)
    turn = (label.cumsum(0) * label).sum(1) - 1  # how many samples of its class come before
    enough = label.sum(0)[y] >= FOLDS
    if not bool(enough.any()):
        return 0.0, 0.0
    folds = []
    for fold in range(FOLDS):
        held = enough & (turn % FOLDS == fold)
        rest = enough & ~held
        folds.append((fitted(z[rest], y[rest], classes, ridge), z[held], y[held]))
    tried = list(product(GRID, GRID)) if separate else [(one, one) for one in GRID]

    def loss(betas: tuple[float, float]) -> float:
        total = 0.0
        for local, points, labels in folds:
            head = discriminant(interpolated(local, shared, *betas), log_priors)
            logits = points @ head.weight.T + head.bias
            total += float(torch.nn.functional.cross_entropy(logits, labels))
        return total

    return min(tried, key=loss)


def packed(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix [D, D], row by row, as [D (D + 1)/2]."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def unpacked(upper: Tensor, width: int) -> Tensor:
    """Return the symmetric matrix [D, D] of an upper triangle."""
    rows, columns = torch.triu_indices(width, width)
    matrix = upper.new_zeros(width, width)
    matrix[rows, columns] = upper
    matrix[columns, rows] = upper
    return matrix

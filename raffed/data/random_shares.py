"""Schemes in which clients have random shares of the classes: MAP's subsets and the Dirichlet splits.

All randomness comes from the seed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.files import IntArray
from raffed.data.randomness import stream
from raffed.data.schemes import shuffled_classes
from raffed.errors import UsageError

FloatArray = npt.NDArray[np.float64]
QUANTITY_SIGMA = 0.3  # as in MAP's code, every client's amount of data is multiplied by LogNormal(0, 0.3)
MAX_REDRAWS = 10_000


def incomplete(labels: IntArray, num_classes: int, clients: int, seed: int) -> list[IntArray]:
    """Draw MAP's random class subsets: nc_k ~ Uniform{2..C}, A_k a random set of nc_k classes.

    D[k, c] = 1/nc_k on A_k. Rows are multiplied by LogNormal(0, 0.3) and columns normalised. The counts
    round(D n_c) are consecutive ranges of each class, the last one clipped. What rounding leaves over is not
    used. Two things differ from the authors' code: classes are shuffled once before they are cut, and classes
    without a holder are drawn again.

    Raises:
        UsageError: After 10,000 draws a class still has no holder, or rounding leaves a client fewer than 2
            classes.
    """
    if num_classes < 2:
        raise UsageError(f"incomplete: the data has {num_classes} class; at least 2 are needed")
    rng = stream(seed, "incomplete")
    owned = _drawn_subsets(rng, clients, num_classes, np.bincount(labels, minlength=num_classes) > 0)
    shares = owned / owned.sum(axis=1, keepdims=True) * rng.lognormal(0.0, QUANTITY_SIGMA, size=(clients, 1))
    shares = shares / np.maximum(shares.sum(axis=0, keepdims=True), np.finfo(np.float64).tiny)
    totals = np.bincount(labels, minlength=num_classes)
    ends = np.minimum(np.cumsum(np.rint(shares * totals).astype(np.int64), axis=0), totals)
    parts = _sliced(shuffled_classes(labels, num_classes, seed), ends)
    held = np.count_nonzero(np.diff(ends, axis=0, prepend=0), axis=1)
    if held.min() < 2:
        raise UsageError(
            f"incomplete:{clients}: client {int(held.argmin())} would hold {int(held.min())} classes; "
            f"{len(labels)} samples are too few for {clients} clients"
        )
    return parts


def dirichlet(labels: IntArray, num_classes: int, clients: int, alpha: float, seed: int) -> list[IntArray]:
    """Divide each class over the clients by p_c ~ Dir(alpha 1_N) (Yurochkin et al. 2019). Every sample is
    used.

    The often copied rule that stops giving to clients above the mean size is not applied. Clients may come
    out empty; `with_minimum` repairs that.
    """
    logs = _log_dirichlet(stream(seed, "dirichlet"), alpha, (num_classes, clients)).T
    return _apportioned(labels, num_classes, logs, seed)


def dirichlet_client(
    labels: IntArray, num_classes: int, clients: int, alpha: float, seed: int
) -> list[IntArray]:
    """Divide by MAP's Dirichlet: π_k ~ Dir(alpha 1_C) per client, times LogNormal(0, 0.3), columns
    normalised.

    Differs from the authors' code: cumulative shares are rounded instead of each share, so that every sample
    is used.
    """
    rng = stream(seed, "dirichlet-client")
    logs = _log_dirichlet(rng, alpha, (clients, num_classes)) + rng.normal(
        0.0, QUANTITY_SIGMA, size=(clients, 1)
    )
    return _apportioned(labels, num_classes, logs, seed)


def _drawn_subsets(
    rng: np.random.RandomState, clients: int, num_classes: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return bool [clients, C]: a random subset of 2..C classes per client, such that each present class has
    a holder.
    """
    for _ in range(MAX_REDRAWS):
        sizes = rng.randint(2, num_classes + 1, size=clients, dtype=np.int64)
        ranks = np.argsort(np.argsort(rng.random_sample((clients, num_classes)), axis=1), axis=1)
        owned = ranks < sizes[:, None]
        if np.all(owned.any(axis=0) | ~present):
            return np.asarray(owned)
    raise UsageError(
        f"incomplete:{clients}: {clients} clients do not cover {num_classes} classes; use more clients"
    )


def _log_dirichlet(rng: np.random.RandomState, alpha: float, shape: tuple[int, int]) -> FloatArray:
    """Return the logarithm of rows ~ Dir(alpha), up to a constant per row.

    Gamma(a) is computed as Gamma(a+1) U^(1/a), which does not underflow for tiny a.
    """
    logs = np.log(rng.gamma(alpha + 1.0, size=shape)) + np.log1p(-rng.random_sample(shape)) / alpha
    peak = logs.max(axis=1, keepdims=True)
    return np.asarray(logs - peak - np.log(np.exp(logs - peak).sum(axis=1, keepdims=True)))


def _apportioned(labels: IntArray, num_classes: int, logs: FloatArray, seed: int) -> list[IntArray]:
    """Divide the samples of each class in proportion to exp(logs[client, c]), with cumulative shares
    rounded.
    """
    weights = np.exp(logs - logs.max(axis=0, keepdims=True))
    cumulative = np.cumsum(weights, axis=0)
    totals = np.bincount(labels, minlength=num_classes)
    ends = np.rint(cumulative / cumulative[-1] * totals).astype(np.int64)
    return _sliced(shuffled_classes(labels, num_classes, seed), ends)


def _sliced(classes: list[IntArray], ends: IntArray) -> list[IntArray]:
    """Give client k the samples classes[c][ends[k-1, c] : ends[k, c]] of every class c."""
    starts = np.vstack([np.zeros((1, ends.shape[1]), dtype=np.int64), ends[:-1]])
    return [
        np.concatenate(
            [indices[low:high] for indices, low, high in zip(classes, row_low, row_high, strict=True)]
        )
        for row_low, row_high in zip(starts.tolist(), ends.tolist(), strict=True)
    ]

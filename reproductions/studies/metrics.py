"""Measures of classifier rows (proxies), features and models, as pure functions (docs/papers/map.md §E4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from raffed import Params


def proxy_norm(w: Tensor, classes: Sequence[int]) -> float:
    """Return the mean of ‖w_c‖ over some classes; NaN for no class.

    With w [C, D] the weight of the head, this is the proxy norm. With w the sum of its gradients over an
    epoch's batches, it is the gradient norm.
    """
    return float(w[list(classes)].double().norm(dim=1).mean())


def mean_distance(w: Tensor, a: Sequence[int], b: Sequence[int] | None = None) -> float:
    """Return the mean of ‖w_i − w_j‖ over unordered pairs inside a, or over all pairs of a x b; NaN without a
    pair.

    w is [C, D].
    """
    return float(
        _pairs(torch.cdist(w.double(), w.double(), compute_mode="donot_use_mm_for_euclid_dist"), a, b).mean()
    )


def mean_log_angle(w: Tensor, a: Sequence[int], b: Sequence[int] | None = None) -> float:
    """Return the mean of log(1 − cos(w_i, w_j)) over the same pairs as `mean_distance`.

    The logarithm is natural, and −∞ is replaced by log(1e-12).
    """
    unit = torch.nn.functional.normalize(w.double(), dim=1)
    return float(_pairs((1 - unit @ unit.T).clamp(min=1e-12).log(), a, b).mean())


def _pairs(table: Tensor, a: Sequence[int], b: Sequence[int] | None) -> Tensor:
    """Return the entries [pairs] of a symmetric table [C, C]."""
    if b is not None:
        return table[list(a)][:, list(b)].flatten()
    inside = table[list(a)][:, list(a)]
    above = torch.triu_indices(len(a), len(a), offset=1)
    return inside[above[0], above[1]]


def mean_cosine(w: Tensor, classes: Sequence[int], direction: Tensor) -> float:
    """Return the mean of cos(w_c, direction) over some classes, with w [C, D] and direction [D]."""
    chosen = w[list(classes)].double()
    return float(torch.nn.functional.cosine_similarity(chosen, direction.double()[None], dim=1).mean())


def spreads(z: Tensor, y: Tensor) -> tuple[float, float]:
    """Return (intra, inter) of features z [n, D] with classes y [n]; NaN without a class or a pair.

    intra is the mean over classes of the mean distance to the class's mean. inter is the mean distance
    between two class means.
    """
    present = torch.bincount(y).nonzero()[:, 0]
    means = torch.stack([z[y == label].double().mean(0) for label in present])
    inside = [
        (z[y == label].double() - mean).norm(dim=1).mean() for label, mean in zip(present, means, strict=True)
    ]
    return float(torch.stack(inside).mean()), mean_distance(means, range(len(means)))


def mean_square(a: Params, b: Params) -> float:
    """Return ‖a − b‖² divided by the number of a model's parameters."""
    return float((a - b).sq_norm()) / a.numel()


def mean(values: Iterable[float]) -> float:
    """Return the unweighted mean; NaN of nothing."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else float("nan")

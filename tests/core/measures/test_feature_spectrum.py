"""The variance of the top 50 eigenvalues against closed forms and the numbers of docs/papers/fedmr.md
§E3, table 7.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raffed.core.measures.scores import BATCH, TOP, by_class, eigenvalue_variance

WIDTH = 512


def hadamard(n: int) -> Tensor:
    """[n, n] of ±1 with orthogonal columns, the first of ones."""
    made = torch.ones(1, 1, dtype=torch.float64)
    while len(made) < n:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)])
    return made


def factors(count: int) -> Tensor:
    """128 samples of 512 features, in `count` equal groups of features that are one orthogonal factor
    each.
    """
    columns = hadamard(BATCH)[:, 1 : count + 1]
    return columns[:, torch.arange(WIDTH) % count]


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32])
def test_equal_factors_have_equal_eigenvalues_that_add_up_to_the_number_of_features(count: int) -> None:
    """k eigenvalues 512/k and zeros: V = (512²/128) (1/k − 1/50); 2007.04 for one, the largest there is."""
    wanted = WIDTH**2 / BATCH * (1 / count - 1 / TOP)
    assert eigenvalue_variance(factors(count)) == pytest.approx(wanted, rel=1e-9)
    assert count > 1 or wanted == pytest.approx(2007.04)


def test_it_is_that_of_the_correlation_matrix_itself() -> None:
    """Eigenvalues of M = ẐᵀẐ/127, 60 x 60, by definition: the Gram matrix has the same."""
    z = torch.randn(BATCH, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)
    top = torch.linalg.eigvalsh(torch.corrcoef(z.T)).flip(0)[:TOP]
    assert eigenvalue_variance(z) == pytest.approx(float((top - top.mean()).square().sum() / 128), rel=1e-10)
    raw = torch.linalg.eigvalsh(torch.cov(z.T)).flip(0)[:TOP]
    assert eigenvalue_variance(z, standardised=False) == pytest.approx(
        float((raw - raw.mean()).square().sum() / 128), rel=1e-10
    )


def drawn(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("made", "wanted", "within"),
    [
        (lambda s: drawn(128, s), 0.54, 0.1),
        (lambda s: drawn(2, s)[torch.arange(128) % 2] + 0.18 * drawn(128, s + 100), 1056, 0.08),
        (lambda s: drawn(10, s)[torch.arange(128) % 10] + 0.18 * drawn(128, s + 100), 174, 0.03),
        (lambda s: 0.6**0.5 * hadamard(128)[:, 1:2] + 0.4**0.5 * drawn(128, s), 740, 0.05),
    ],
    ids=["noise", "two clusters", "ten clusters", "one factor with 60 %"],
)
def test_noise_clusters_and_a_common_factor_have_the_sheet_s_values(
    made: object, wanted: float, within: float
) -> None:
    values = [eigenvalue_variance(made(seed)) for seed in range(5)]  # type: ignore[operator]
    assert sum(values) / 5 == pytest.approx(wanted, rel=within)


def test_classes_weigh_alike_and_those_below_a_batch_do_not_count() -> None:
    """Class 0: two batches of one factor, class 1: one batch of two factors, class 2: 127 samples."""
    z = torch.cat([factors(1), factors(1), factors(2), drawn(127, 0)])
    y = torch.tensor([0] * 256 + [1] * 128 + [2] * 127)
    mean, count = by_class(z, y, torch.arange(len(z)))
    assert (count, mean) == (3, pytest.approx((2007.04 + 983.04) / 2))
    assert math.isnan(by_class(z[-127:], y[-127:], torch.arange(127))[0])

"""FedDecorr: the feature dimensions of a batch are decorrelated (Shi et al. 2023)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from raffed.methods.feddecorr import Decorrelation, correlation, feddecorr, intra_class
from tests.tiny import bare_context, forward

X = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64)


def random(n: int = 12, d: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("norm", "wanted"), [("official", 0.1499999969), ("paper", 0.3777778)])
def test_the_loss_of_four_samples_with_three_features(norm: str, wanted: float) -> None:
    assert float(correlation(X, norm)) == pytest.approx(wanted, abs=1e-7)


def test_the_official_loss_is_fedmrs_intra_class_loss_where_all_samples_have_one_label() -> None:
    one_label = torch.full((12,), 2)
    assert torch.equal(correlation(random()), intra_class(random(), one_label))


@pytest.mark.parametrize("n", [2, 12, 40])
def test_both_norms_are_means_of_squared_correlations(n: int) -> None:
    """NumPy's correlations ρ: official ((N − 1)²/N) mean_{i≠j} ρ², paper mean_{i,j} ρ²."""
    z = random(n)
    squared = np.corrcoef(z.numpy(), rowvar=False) ** 2
    off_diagonal = squared[~np.eye(5, dtype=bool)].mean()
    assert float(correlation(z)) == pytest.approx((n - 1) ** 2 / n * off_diagonal, rel=1e-6)
    assert float(correlation(z, "paper")) == pytest.approx(squared.mean(), rel=1e-6)


def test_two_features_that_are_proportional_have_n_minus_1_squared_over_n() -> None:
    z = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], dtype=torch.float64)
    assert float(correlation(z)) == pytest.approx(4 / 3, abs=1e-6)
    assert float(correlation(z, "paper")) == pytest.approx(1.0, abs=1e-6)


def test_an_orthogonal_design_has_none_but_the_papers_diagonal() -> None:
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert float(correlation(z)) == pytest.approx(0.0, abs=1e-15)
    assert float(correlation(z, "paper")) == pytest.approx(0.5, abs=1e-7)


@pytest.mark.parametrize("norm", ["official", "paper"])
def test_it_depends_neither_on_the_scale_nor_on_the_place_of_the_features(norm: str) -> None:
    """Up to the 1e-8 beside the variance: 5 X + 3 changes it by 2e-8."""
    assert float(correlation(5 * X + 3, norm)) == pytest.approx(float(correlation(X, norm)), rel=1e-7)


@pytest.mark.parametrize("norm", ["official", "paper"])
def test_a_batch_of_one_and_constant_features_give_0_with_a_finite_gradient(norm: str) -> None:
    for z in (torch.ones(1, 3), torch.ones(6, 3)):
        live = z.clone().requires_grad_()
        loss = correlation(live, norm)
        assert float(loss.detach()) == 0.0
        assert bool(torch.isfinite(torch.autograd.grad(loss, live)[0]).all())


def test_the_term_takes_the_input_of_the_head_and_no_labels() -> None:
    z = random()
    for y in (torch.zeros(12, dtype=torch.int64), torch.arange(12) % 3):
        f = forward(z, y, logits=random(seed=1))
        assert torch.equal(Decorrelation(0.3).loss(f, bare_context()), 0.3 * correlation(z))


def test_without_strength_there_is_no_term() -> None:
    assert feddecorr(0.0).terms == ()
    assert feddecorr().terms == (Decorrelation(0.1, "official"),)
    assert feddecorr(1.0, "paper").terms == (Decorrelation(1.0, "paper"),)

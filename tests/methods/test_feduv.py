"""FedUV: predictions that vary, features that spread out (Son et al. 2024)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raffed.methods.feduv import (
    FeatureUniformity,
    PredictionVariance,
    closeness,
    feduv,
    lacking_variance,
    lower_median_above_0,
)
from tests.tiny import bare_context, forward

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 2.0]], dtype=torch.float64)
H = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)  # squared distances 5, 5, 10


def random(n: int = 9, d: int = 4) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_terms_of_three_samples() -> None:
    """σ = 5, so U = (2 e^{−1} + e^{−2})/3 = 0.2903647; A = 0.2706685; 2.5 A + 0.5 U = 0.8218536."""
    assert float(closeness(H)) == pytest.approx((2 * math.exp(-1) + math.exp(-2)) / 3, rel=1e-12)
    assert float(closeness(H)) == pytest.approx(0.2903647, abs=1e-7)
    assert float(lacking_variance(LOGITS)) == pytest.approx(0.2706685, abs=1e-7)
    f, k = forward(H, torch.tensor([0, 1, 2]), logits=LOGITS), bare_context()
    assert sum(float(term.loss(f, k)) for term in feduv().terms) == pytest.approx(0.8218536, abs=1e-7)


def test_the_uniformity_does_not_depend_on_the_scale_of_the_features() -> None:
    """U(7 h) = U(h). So ⟨h, ∂U/∂h⟩ = 0, which would not hold without the gradient of σ."""
    h = random().requires_grad_()
    loss = closeness(h)
    assert float(closeness(7 * h).detach()) == pytest.approx(float(loss.detach()), rel=1e-12)
    (slope,) = torch.autograd.grad(loss, h)
    assert float((h * slope).sum().detach()) == pytest.approx(0.0, abs=1e-14)
    assert float(slope.abs().max()) > 1e-3


def test_features_at_equal_distances_have_the_uniformity_1_over_e() -> None:
    for n in (2, 3, 6):
        assert float(closeness(3 * torch.eye(n, dtype=torch.float64))) == pytest.approx(math.exp(-1))


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([5.0, 5.0, 10.0], 5.0),
        ([4.0, 1.0, 3.0, 2.0], 2.0),  # the lower one of two
        ([0.0, 0.0, 0.0, 7.0, 8.0], 7.0),  # zeros do not count
        ([0.0, 9.0], 9.0),
        ([0.0, 0.0], math.inf),
    ],
)
def test_the_median_is_torchs_of_the_values_above_0(values: list[float], median: float) -> None:
    given = torch.tensor(values)
    assert float(lower_median_above_0(given)) == median
    assert median == math.inf or float(given[given != 0].median()) == median


def test_constant_logits_lack_all_variance_and_an_even_split_of_sure_ones_none() -> None:
    """A = 1/√C, and 0 for one sure sample of each class: the identity's columns have std 1/√C."""
    for classes in (3, 10):
        flat = torch.ones(5, classes, dtype=torch.float64)
        sure = 1e3 * torch.eye(classes, dtype=torch.float64)
        assert float(lacking_variance(flat)) == pytest.approx(1 / math.sqrt(classes), abs=2e-6)
        assert float(lacking_variance(sure)) == pytest.approx(0.0, abs=1e-12)


def test_a_large_even_batch_of_sure_predictions_still_lacks_variance() -> None:
    """std → √(C−1)/C = 0.3 for C = 10, below 1/√10 = 0.3162278: at least 0.0162 is missing."""
    sure = 1e3 * torch.eye(10, dtype=torch.float64).repeat(500, 1)
    assert float(lacking_variance(sure)) == pytest.approx(1 / math.sqrt(10) - 0.3, abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 6])
def test_equal_samples_and_a_batch_of_one_have_a_finite_gradient(n: int) -> None:
    same = torch.ones(n, 3).requires_grad_()
    for term in (lacking_variance, closeness):
        loss = term(same) + 0 * same.sum()
        assert bool(torch.isfinite(torch.autograd.grad(loss, same)[0]).all())
    if n == 1:
        assert float(lacking_variance(same).detach()) == float(closeness(same).detach()) == 0.0


def test_two_equal_samples_among_others_keep_the_gradient_finite_and_do_not_move_sigma() -> None:
    h = torch.cat([H, H[:1]]).requires_grad_()
    loss = closeness(h)
    wanted = (1 + 4 * math.exp(-1) + math.exp(-2)) / 6  # squared distances 0, 5, 5, 5, 5, 10 and σ = 5
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-12)
    assert bool(torch.isfinite(torch.autograd.grad(loss, h)[0]).all())


def test_a_term_without_strength_is_left_out() -> None:
    assert feduv(0.0, 0.0).terms == ()
    assert feduv(lam=0.0).terms == (FeatureUniformity(0.5),)
    assert feduv(mu=0.0).terms == (PredictionVariance(2.5),)

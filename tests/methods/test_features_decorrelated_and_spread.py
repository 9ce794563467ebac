"""Losses of a batch's features: FedMR's intra-class loss, FedDecorr, FedUV."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.methods.feddecorr import Decorrelation, correlation, feddecorr, intra_class
from raffed.methods.feduv import (
    FeatureUniformity,
    PredictionVariance,
    closeness,
    feduv,
    lacking_variance,
    lower_median_above_0,
)
from tests.tiny import bare_context, forward

# FedMR's intra-class loss (docs/papers/fedmr.md §10 no. 2-5, §2.1, §2.3).


def features(seed: int, rows: int, d: int) -> Tensor:
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(z: Tensor, y: Tensor, norm: str = "official") -> Tensor:
    z = z.clone().requires_grad_()
    return torch.autograd.grad(intra_class(z, y, norm), z)[0]


def official_by_numpy(z: Tensor, y: Tensor) -> float:
    """The released code's loop: Σ_c mean_{i≠j} (X̂ᵀX̂)²_ij / Σ_c N_c, X̂ = (X − mean)/√(1e-8 + unbiased
    var), N_c ≥ 2.
    """
    top, bottom = 0.0, 0
    for c in np.unique(y):
        x = z.numpy()[y.numpy() == c]
        if len(x) < 2:
            continue
        unit = (x - x.mean(0)) / np.sqrt(1e-8 + x.var(0, ddof=1))
        r, d = unit.T @ unit, x.shape[1]
        top += (np.sum(r**2) - np.sum(np.diag(r) ** 2)) / (d * (d - 1))
        bottom += len(x)
    return top / bottom if bottom else 0.0


def by_correlations(z: Tensor, y: Tensor) -> float:
    """§2.1's closed form: Σ_c (N_c − 1)² · mean_{i≠j} ρ²_ij / Σ_c N_c."""
    top, d = 0.0, z.shape[1]
    for c in np.unique(y):
        x = z.numpy()[y.numpy() == c]
        top += (len(x) - 1) ** 2 * (np.sum(np.corrcoef(x.T) ** 2) - d) / (d * (d - 1))
    return top / len(y)


def paper_by_numpy(z: Tensor, y: Tensor) -> float:
    """Eq. 3: (1/|C_b|) Σ_c ‖ẐᵀẐ/(N_c − 1)‖²_F, biased σ (and our 1e-8), diagonal included."""
    values = []
    for c in np.unique(y):
        x = z.numpy()[y.numpy() == c]
        if len(x) > 1:
            unit = (x - x.mean(0)) / np.sqrt(1e-8 + x.var(0))
            values.append(np.sum((unit.T @ unit / (len(x) - 1)) ** 2))
    return float(np.mean(values)) if values else 0.0


labels = st.lists(st.integers(0, 3), min_size=1, max_size=24)


@given(st.integers(0, 10**6), labels, st.integers(2, 9))
def test_both_forms_are_what_a_loop_over_the_classes_gives(seed: int, y: list[int], d: int) -> None:
    """Test 2, unequal classes, classes of one sample and missing classes included."""
    z, label = features(seed, len(y), d), torch.tensor(y)
    assert float(intra_class(z, label)) == pytest.approx(official_by_numpy(z, label), rel=1e-5, abs=1e-9)
    assert float(intra_class(z, label, "paper")) == pytest.approx(
        paper_by_numpy(z, label), rel=1e-5, abs=1e-9
    )


def test_the_official_form_is_the_closed_form_of_squared_correlations() -> None:
    """Test 2, against numpy's corrcoef; classes of 9, 7 and 4 samples."""
    y = torch.tensor([0] * 9 + [1] * 7 + [2] * 4)
    z = features(7, 20, 6)
    assert float(intra_class(z, y)) == pytest.approx(by_correlations(z, y), rel=1e-5)


@pytest.mark.parametrize("norm", ["official", "paper"])
def test_the_loss_does_not_see_a_scale_or_shift_of_a_feature(norm: str) -> None:
    """Test 2."""
    z, y = features(0, 20, 6), torch.arange(20) % 3
    scale, shift = torch.tensor([1.0, 30, 0.1, -2, 5, 1]), torch.tensor([0.0, 7, -3, 100, 0, 1])
    assert float(intra_class(z * scale + shift, y, norm)) == pytest.approx(
        float(intra_class(z, y, norm)), rel=1e-5
    )


@pytest.mark.parametrize("norm", ["official", "paper"])
def test_a_dead_feature_gives_a_finite_loss_and_no_gradient_to_itself(norm: str) -> None:
    """Test 2: var = 0: X̂ = 0, R_ij = 0."""
    z, y = torch.cat([features(0, 20, 6), torch.zeros(20, 1, dtype=torch.float64)], 1), torch.arange(20) % 3
    g = gradient(z, y, norm)
    assert bool(torch.isfinite(intra_class(z, y, norm)))
    assert bool(torch.isfinite(g).all())
    assert float(g[:, 6].abs().max()) == 0.0
    assert bool(torch.isfinite(gradient(z.float(), y, norm)).all())


def test_two_samples_a_class_give_the_constant_a_half_without_gradient() -> None:
    """Test 3: N_c = 2 makes every ρ = ±1: (N−1)²/N = ½."""
    z, y = features(1, 3, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    # No two samples nearly equal in a feature
    z = torch.cat([z, z + torch.tensor([1.0, -2.0, 3.0, 0.5, -1.0])])
    assert float(intra_class(z, y)) == pytest.approx(0.5, abs=1e-5)
    assert float(gradient(z, y).norm()) < 1e-3


def test_one_sample_a_class_gives_exactly_0_and_a_backward_pass() -> None:
    """Test 3: the released code returns an int there."""
    z, y = features(1, 3, 5), torch.arange(3)
    assert float(intra_class(z, y)) == 0.0
    assert float(gradient(z, y).abs().max()) == 0.0


@pytest.mark.parametrize(("classes", "n", "d"), [(2, 8, 6), (3, 5, 7), (1, 12, 4)])
def test_on_a_balanced_batch_the_two_forms_differ_by_kappa_and_a_constant(
    classes: int, n: int, d: int
) -> None:
    """Test 4: ℓ_paper = (N/(N−1))² d + κ ℓ_official, κ = d(d−1)N³/(N−1)⁴, parallel gradients."""
    z, y = features(2, classes * n, d), torch.arange(classes * n) % classes
    kappa = d * (d - 1) * n**3 / (n - 1) ** 4
    wanted = (n / (n - 1)) ** 2 * d + kappa * float(intra_class(z, y))
    assert float(intra_class(z, y, "paper")) == pytest.approx(wanted, rel=1e-6)
    torch.testing.assert_close(gradient(z, y, "paper"), kappa * gradient(z, y), rtol=1e-4, atol=1e-7)


def flat_spectrum(n: int, d: int) -> Tensor:
    """[n, d] of zero mean and unit variance whose correlations have n − 1 equal eigenvalues d/(n − 1), n
    even.

        A harmonic frame of d unit columns in n − 1 dimensions, put into the space orthogonal to 1.
    """
    angle = 2 * math.pi * torch.arange(1, n // 2, dtype=torch.float64)[:, None] * torch.arange(d) / d
    frame = torch.cat([torch.full((1, d), math.sqrt(0.5)), angle.cos(), angle.sin()]) * math.sqrt(2 / (n - 1))
    basis = torch.linalg.qr(torch.cat([torch.ones(n, 1), features(0, n, n - 1)], 1))[0][:, 1:]
    return math.sqrt(n - 1) * basis @ frame


@pytest.mark.parametrize(
    ("d", "n", "classes", "kappa", "official", "paper"),
    [
        (512, 64, 2, 4354, (0.865, 62.0), (4.29e3, 2.71e5)),
        (512, 26, 5, 11772, (0.916, 24.0), (1.13e4, 2.84e5)),
        (640, 12, 10, 48267, (0.902, 10.1), (4.43e4, 4.87e5)),
    ],
)
def test_kappa_floor_and_ceiling_of_both_forms_are_the_sheets(
    d: int, n: int, classes: int, kappa: int, official: tuple[float, float], paper: tuple[float, float]
) -> None:
    """§2.1 table: from correlations as flat as their rank allows to full collapse, in a batch of several
    classes.
    """
    y = torch.arange(classes).repeat_interleave(n)
    for z, least, theirs in zip(
        (flat_spectrum(n, d), features(3, n, 1).expand(n, d)), official, paper, strict=True
    ):
        z = z.repeat(classes, 1)
        ours, printed = float(intra_class(z, y)), float(intra_class(z, y, "paper"))
        assert ours == pytest.approx(least, rel=5e-3)  # three digits
        assert printed == pytest.approx(theirs, rel=5e-3)
        assert (printed - (n / (n - 1)) ** 2 * d) / ours == pytest.approx(kappa, abs=0.5)


@pytest.mark.parametrize("norm", ["official", "paper"])
def test_one_feature_has_no_pair_of_features(norm: str) -> None:
    """D = 1: the official form sums over no entry; the paper's keeps the diagonal, (N/(N − 1))² = 2.25
    for N = 3.
    """
    z, y = features(6, 6, 1), torch.tensor([0, 1, 0, 1, 0, 1])
    assert float(intra_class(z, y, norm)) == pytest.approx(0.0 if norm == "official" else 2.25, abs=1e-6)
    assert float(gradient(z, y, norm).abs().max()) < 1e-6


def descended(d: int, steps: int = 300) -> tuple[float, float]:
    """(last value, least value) of Adam at 0.02 on a free z [64, d] of one class."""
    z = torch.randn(64, d, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y, optimiser, least = torch.zeros(64, dtype=torch.int64), torch.optim.Adam([z], lr=0.02), float("inf")
    for _ in range(steps):
        optimiser.zero_grad()
        loss = intra_class(z, y)
        loss.backward()
        least = min(least, float(loss.detach()))
        optimiser.step()
    return float(intra_class(z, y).detach()), least


def test_a_narrow_feature_can_be_decorrelated() -> None:
    """Test 5: N = 64, d = 16 ends below 1e-3."""
    assert descended(16)[0] < 1e-3


def test_a_wide_feature_stops_at_the_rank_limited_floor_and_never_below() -> None:
    """Test 5: N = 64, d = 512: (63²/64)(512/63 − 1)/511 = 0.86494."""
    floor = 63**2 / 64 * (512 / 63 - 1) / 511
    last, least = descended(512)
    assert floor == pytest.approx(0.86494, abs=1e-5)
    assert last == pytest.approx(floor, abs=1e-4)
    assert least > floor - 1e-4


@given(st.integers(0, 10**6))
def test_the_lemma_on_eigenvalues(seed: int) -> None:
    """§2.3: Σ(λ_i − λ̄)² = ‖M‖²_F − tr(M)²/d, with the paper's mix tr(M) = dN/(N−1)."""
    n, d = 12, 5
    z, y = features(seed, n, d), torch.zeros(n, dtype=torch.int64)
    unit = (z - z.mean(0)) / z.var(0, unbiased=False).sqrt()
    eig = torch.linalg.eigvalsh(unit.T @ unit / (n - 1))
    spread = float((eig - eig.mean()).square().sum())
    assert float(intra_class(z, y, "paper")) - d * (n / (n - 1)) ** 2 == pytest.approx(
        spread, rel=1e-5, abs=1e-6
    )


def test_the_least_class_count_leaves_smaller_classes_out() -> None:
    """§2.1: classes 0 (5 samples) and 1 (3 samples): least = 4 counts class 0 alone, divided by its 5
    samples.
    """
    z, y = features(4, 8, 4), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    assert float(intra_class(z, y, least=4)) == pytest.approx(official_by_numpy(z[:5], y[:5]), rel=1e-5)
    assert float(intra_class(z, y, "paper", 4)) == pytest.approx(paper_by_numpy(z[:5], y[:5]), rel=1e-5)


def test_half_precision_features_are_computed_in_float32() -> None:
    """§2.1: also under autocast."""
    z, y = features(5, 16, 8), torch.arange(16) % 2
    low = z.to(torch.bfloat16)
    assert intra_class(low, y).dtype == torch.float32
    assert float(intra_class(low, y)) == pytest.approx(float(intra_class(low.double(), y)), rel=1e-4)


# FedDecorr: the feature dimensions of a batch are decorrelated (Shi et al. 2023).

X = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [2.0, 1.0, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64)


@pytest.mark.parametrize(("norm", "wanted"), [("official", 0.1499999969), ("paper", 0.3777778)])
def test_the_loss_of_four_samples_with_three_features(norm: str, wanted: float) -> None:
    assert float(correlation(X, norm)) == pytest.approx(wanted, abs=1e-7)


def test_the_official_loss_is_fedmrs_intra_class_loss_where_all_samples_have_one_label() -> None:
    one_label = torch.full((12,), 2)
    assert torch.equal(correlation(features(0, 12, 5)), intra_class(features(0, 12, 5), one_label))


@pytest.mark.parametrize("n", [2, 12, 40])
def test_both_norms_are_means_of_squared_correlations(n: int) -> None:
    """NumPy's correlations ρ: official ((N − 1)²/N) mean_{i≠j} ρ², paper mean_{i,j} ρ²."""
    z = features(0, n, 5)
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
    z = features(0, 12, 5)
    for y in (torch.zeros(12, dtype=torch.int64), torch.arange(12) % 3):
        f = forward(z, y, logits=features(1, 12, 5))
        assert torch.equal(Decorrelation(0.3).loss(f, bare_context()), 0.3 * correlation(z))


def test_without_strength_there_is_no_term() -> None:
    assert feddecorr(0.0).terms == ()
    assert feddecorr().terms == (Decorrelation(0.1, "official"),)
    assert feddecorr(1.0, "paper").terms == (Decorrelation(1.0, "paper"),)


# FedUV: predictions that vary, features that spread out (Son et al. 2024).

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 2.0]], dtype=torch.float64)
H = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)  # squared distances 5, 5, 10


def test_the_terms_of_three_samples() -> None:
    """σ = 5, so U = (2 e^{−1} + e^{−2})/3 = 0.2903647; A = 0.2706685; 2.5 A + 0.5 U = 0.8218536."""
    assert float(closeness(H)) == pytest.approx((2 * math.exp(-1) + math.exp(-2)) / 3, rel=1e-12)
    assert float(closeness(H)) == pytest.approx(0.2903647, abs=1e-7)
    assert float(lacking_variance(LOGITS)) == pytest.approx(0.2706685, abs=1e-7)
    f, k = forward(H, torch.tensor([0, 1, 2]), logits=LOGITS), bare_context()
    assert sum(float(term.loss(f, k)) for term in feduv().terms) == pytest.approx(0.8218536, abs=1e-7)


def test_the_uniformity_does_not_depend_on_the_scale_of_the_features() -> None:
    """U(7 h) = U(h). So ⟨h, ∂U/∂h⟩ = 0, which would not hold without the gradient of σ."""
    h = features(0, 9, 4).requires_grad_()
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

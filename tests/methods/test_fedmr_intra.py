"""FedMR's intra-class loss (docs/papers/fedmr.md §10 no. 2-5, §2.1, §2.3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.methods.feddecorr import intra_class


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

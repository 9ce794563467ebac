"""MSE, PSNR, SSIM against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from raffed.attacks.protocol import mse, psnr, ssim

X = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_an_error_of_a_tenth_everywhere_is_0_01_and_20_decibels() -> None:
    assert mse(X + 0.1, X) == pytest.approx(0.01, rel=1e-4)
    assert psnr(X + 0.1, X) == pytest.approx(20.0, abs=1e-3)
    assert psnr(X, X) == math.inf


def test_a_picture_is_wholly_like_itself_and_the_likeness_is_symmetric() -> None:
    other = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert ssim(X, X) == pytest.approx(1.0, abs=1e-12)
    assert ssim(X, other) == pytest.approx(ssim(other, X), abs=1e-12)
    assert abs(ssim(X, other)) < 0.2


def test_of_two_flat_pictures_only_the_luminance_counts() -> None:
    """Without variance: (2 · 0.5 · 0.25 + c₁) / (0.25 + 0.0625 + c₁) with c₁ = 1e-4."""
    flat = torch.ones(1, 12, 12)
    assert ssim(0.5 * flat, 0.25 * flat) == pytest.approx(0.2501 / 0.3126, rel=1e-9)


def test_a_picture_turned_into_its_negative_about_the_mean_has_a_negative_likeness() -> None:
    """At one position (side 11): structure (c₂ − 2 v)/(2 v + c₂) with v the window's variance, luminance
    1 at equal means.
    """
    x = X[:1, :11, :11].double()
    at = torch.arange(11).double() - 5
    bell = torch.exp(-(at**2) / 4.5)
    window = torch.outer(bell, bell) / bell.sum() ** 2
    mean = (window * x[0]).sum()
    v = float((window * (x[0] - mean) ** 2).sum())
    assert ssim((2 * mean - x).float(), x.float()) == pytest.approx((9e-4 - 2 * v) / (9e-4 + 2 * v), abs=1e-5)

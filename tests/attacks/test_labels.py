"""Label inference (docs/papers/mpfedcon.md §5.1, §6 item 10), and the likeness of pictures."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from raffed.attacks.protocol import by_bias, by_inner_product, by_sign, inferred, mse, psnr, ssim, told
from raffed.core.params import Params
from raffed.methods.common import ClassSums

SAMPLES, CLASSES, WIDTH = 200, 10, 30


def gradients(activation: Callable[[Tensor], Tensor]) -> list[tuple[Tensor, Tensor, int]]:
    """(∂W, ∂b, y) of 200 single samples under random last layers, by autograd."""
    g, found = torch.Generator().manual_seed(3), []
    for i in range(SAMPLES):
        w = (torch.rand(CLASSES, WIDTH, generator=g) - 0.5).requires_grad_()
        b = (torch.rand(CLASSES, generator=g) - 0.5).requires_grad_()
        a, y = activation(torch.randn(1, WIDTH, generator=g)), i % CLASSES
        loss = torch.nn.functional.cross_entropy(a @ w.T + b, torch.tensor([y]))
        found.append((*torch.autograd.grad(loss, [w, b]), y))
    return found


def test_all_three_rules_are_right_on_200_samples_with_a_sigmoid_below() -> None:
    """10."""
    for weight, bias, y in gradients(torch.sigmoid):
        assert by_bias(bias) == by_sign(weight) == by_inner_product(weight) == y


def test_with_tanh_below_the_sign_rule_fails_often_and_the_other_two_never() -> None:
    """10: about a half of the sums Σ a are negative."""
    right = 0
    for weight, bias, y in gradients(torch.tanh):
        assert by_bias(bias) == by_inner_product(weight) == y
        right += by_sign(weight) == y
    assert 0.3 * SAMPLES < right < 0.7 * SAMPLES


def test_a_rule_is_asked_only_where_its_part_of_the_gradient_was_seen() -> None:
    g = Params({"body.a": torch.ones(2), "head.weight": torch.tensor([[1.0], [-2.0], [1.0]])})
    assert inferred(g) == {"sign": 1, "inner product": 1}
    assert inferred(Params({"body.a": torch.ones(2)})) == {}


@pytest.mark.parametrize(("count", "wanted"), [([0, 1, 0], 1), ([0, 1, 2], None), ([0, 0, 0], None)])
def test_counts_beside_the_weights_tell_the_label_of_one_image(count: list[int], wanted: int | None) -> None:
    assert told({"term": ClassSums(torch.zeros(3, 4), torch.tensor(count))}) == wanted
    assert told({}) is None


# MSE, PSNR, SSIM against their definitions

X = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_an_error_of_a_tenth_everywhere_is_0_01_and_20_decibels() -> None:
    assert mse(X + 0.1, X) == pytest.approx(0.01, rel=1e-4)
    assert psnr(X + 0.1, X) == pytest.approx(20.0, abs=1e-3)
    assert psnr(X, X) == math.inf


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

"""Label inference (docs/papers/mpfedcon.md §5.1, §6 item 10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from raffed.attacks.leakage import by_bias, by_inner_product, by_sign, inferred, told
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


def test_the_rows_inner_products_with_the_others_add_up_to_minus_the_squares_of_what_is_missing() -> None:
    """p = (0.5, 0.3, 0.2), y = 0, ‖a‖² = 4: row 0 −0.25 · 4, row 1 −0.09 · 4, row 2 −0.04 · 4."""
    a, error = torch.tensor([2.0, 0.0]), torch.tensor([-0.5, 0.3, 0.2])
    weight = error[:, None] * a
    gram = weight @ weight.T
    torch.testing.assert_close(gram.sum(1) - gram.diagonal(), torch.tensor([-1.0, -0.36, -0.16]))
    assert by_inner_product(weight) == 0


def test_a_rule_is_asked_only_where_its_part_of_the_gradient_was_seen() -> None:
    g = Params({"body.a": torch.ones(2), "head.weight": torch.tensor([[1.0], [-2.0], [1.0]])})
    assert inferred(g) == {"sign": 1, "inner product": 1}
    assert inferred(Params({"body.a": torch.ones(2)})) == {}


@pytest.mark.parametrize(("count", "wanted"), [([0, 1, 0], 1), ([0, 1, 2], None), ([0, 0, 0], None)])
def test_counts_beside_the_weights_tell_the_label_of_a_single_image(
    count: list[int], wanted: int | None
) -> None:
    assert told({"term": ClassSums(torch.zeros(3, 4), torch.tensor(count))}) == wanted
    assert told({}) is None

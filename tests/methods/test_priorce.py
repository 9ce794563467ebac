"""PriorCE: the log of the client's class prior on the logits (Ren et al. 2020, Menon et al. 2021)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raffed.core.losses import cross_entropy
from raffed.methods.common import BalancedSoftmax
from raffed.methods.fedavg import fedavg
from raffed.methods.priorce import priorce
from tests.tiny import Tiny, same_bits
from tests.worked import ONE_MISSING, Y, Z, holder


def loss(z: Tensor, tau: float, missing: str = "mask", counts: tuple[int, ...] = ONE_MISSING) -> Tensor:
    return cross_entropy(BalancedSoftmax(tau, missing=missing).logits(z, holder(counts)), Y)


@pytest.mark.parametrize(
    ("tau", "missing", "wanted"),
    [
        (1.0, "mask", 0.5183757),
        (1.0, "eps", 0.5183757),  # larger by 5e-10
        (1.0, "one", 0.5236316),
        (0.5, "mask", 0.4101918),
    ],
)
def test_the_loss_of_the_worked_example(tau: float, missing: str, wanted: float) -> None:
    assert float(loss(Z, tau, missing)) == pytest.approx(wanted, abs=1e-7)


def test_a_missing_class_is_pushed_not_at_all_or_hardly_or_as_a_class_of_one_sample() -> None:
    def pushed(missing: str) -> list[float]:
        z = Z.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(z, 1.0, missing), z)
        return [float(g) for g in slope[:, 2]]

    assert pushed("mask") == [0.0, 0.0]
    assert pushed("eps") == pytest.approx([1.2e-10, 4.0e-10], rel=0.05)
    assert pushed("one") == pytest.approx([0.0012238, 0.0040144], abs=1e-7)


@pytest.mark.parametrize("tau", [0.5, 1.0, 1.5])
def test_equal_counts_give_the_cross_entropy_over_the_classes_held(tau: float) -> None:
    """Counts (7, 7, 0, 7): the softmax is over classes 0, 1 and 3."""
    held = Z[:, [0, 1, 3]]
    assert float(loss(Z, tau, counts=(7, 7, 0, 7))) == pytest.approx(float(cross_entropy(held, Y)), rel=1e-6)


@pytest.mark.parametrize("missing", ["mask", "eps", "one"])
def test_counts_and_shares_are_the_same(missing: str) -> None:
    """Ten times as many samples of every class: constants cancel, but one sample is then a smaller share."""
    more = tuple(10 * n for n in ONE_MISSING)
    same = float(loss(Z, 1.0, missing, more)) == pytest.approx(float(loss(Z, 1.0, missing)), rel=1e-6)
    assert same == (missing != "one")


@pytest.mark.parametrize("missing", ["mask", "one"])
def test_a_power_that_no_float_holds_has_its_logarithm(missing: str) -> None:
    """Counts (8000, 100, 0) at τ = 10: 8000^10 is above 3.4e38. Of equal logits, CE = 10 log(8000/n_y)."""
    prior = BalancedSoftmax(10.0, missing=missing).logits(torch.zeros(2, 3), holder((8000, 100, 0)))
    costs = [float(cross_entropy(row[None], torch.tensor([y]))) for y, row in enumerate(prior)]
    assert costs == pytest.approx([0.0, 10 * math.log(80)], rel=1e-6, abs=1e-12)


def test_without_strength_there_is_no_head() -> None:
    """A mask at τ = 0 would still leave out missing classes, which FedAvg does not."""
    assert priorce(0.0).head is None
    assert priorce().head == BalancedSoftmax(1.0)


def test_it_differs_from_fedavg_for_a_client_whose_counts_are_unequal_or_0() -> None:
    mine, plain = Tiny(priorce()).visit(1), Tiny(fedavg()).visit(1)
    assert not same_bits(mine.trained, plain.trained)


def test_label_smoothing_applies_where_no_logit_is_minus_infinity() -> None:
    assert [BalancedSoftmax(1.0, missing=m).smooths for m in ("mask", "eps", "one")] == [False, True, True]
    assert math.isinf(float(BalancedSoftmax(1.0).logits(Z, holder())[0, 2]))

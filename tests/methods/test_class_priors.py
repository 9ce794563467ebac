"""Logits that know a client's class counts: PriorCE, FedLC, FedVLS."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.methods import build_method
from raffed.methods.common import BalancedSoftmax
from raffed.methods.fedlc import CalibratedLogits, OtherClasses, calibrated, fedlc
from raffed.methods.fedvls import LogitSuppression, VacantDistillation, fedvls, suppression
from raffed.methods.priorce import priorce
from tests.tiny import PLAIN, Tiny, forward, network, same_bits
from tests.worked import CROSS_ENTROPY, ONE_MISSING, TEACHER, TWO_MISSING, Y, Z, holder

# PriorCE: the log of the client's class prior on the logits (Ren et al. 2020, Menon et al. 2021).


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


def test_label_smoothing_applies_where_no_logit_is_minus_infinity() -> None:
    assert [BalancedSoftmax(1.0, missing=m).smooths for m in ("mask", "eps", "one")] == [False, True, True]
    assert math.isinf(float(BalancedSoftmax(1.0).logits(Z, holder())[0, 2]))


# FedLC: logits minus τ n^{−1/4} (Zhang et al. 2022).


def fedlc_loss(
    z: Tensor,
    tau: float,
    denominator: str = "all",
    missing: str = "mask",
    counts: tuple[int, ...] = ONE_MISSING,
) -> Tensor:
    head = fedlc(tau, denominator, missing).head
    assert head is not None
    return head.loss(forward(z, Y), holder(counts))


def slope(tau: float, denominator: str = "all", missing: str = "mask") -> Tensor:
    z = Z.clone().requires_grad_()
    return torch.autograd.grad(fedlc_loss(z, tau, denominator, missing), z)[0]


def test_the_margins_of_the_worked_example() -> None:
    """80, 15 and 5 samples: n^{−1/4} = 0.3343702, 0.5081328 and 0.6687403; the third class has none."""
    a = calibrated(torch.zeros(1, 4, dtype=torch.float64), torch.tensor(ONE_MISSING), 1.0)[0]
    assert (-a[[0, 1, 3]]).tolist() == pytest.approx([0.3343702, 0.5081328, 0.6687403], abs=1e-7)
    assert float(a[2]) < -1e29
    soft = calibrated(torch.zeros(1, 4), torch.tensor(ONE_MISSING), 0.5, "soft")[0]
    assert float(soft[2]) == pytest.approx(-50.0, rel=1e-5)


@pytest.mark.parametrize(
    ("tau", "denominator", "missing", "wanted"),
    [
        (1.0, "all", "mask", 0.4525126),
        (0.1, "all", "mask", 0.4874307),
        (0.1, "all", "soft", 0.4874387),
        (1.0, "others", "mask", -0.5941698),
        (0.1, "others", "mask", -0.5381574),
    ],
)
def test_fedlc_s_loss_of_the_worked_example(
    tau: float, denominator: str, missing: str, wanted: float
) -> None:
    assert float(fedlc_loss(Z, tau, denominator, missing)) == pytest.approx(wanted, abs=1e-7)


def test_with_the_mask_a_small_strength_tends_to_the_cross_entropy_over_the_classes_held() -> None:
    """And not to FedAvg's: 0.4918941 in place of 0.6458148."""
    held = float(cross_entropy(Z[:, [0, 1, 3]], Y))
    assert held == pytest.approx(0.4918941, abs=1e-7)
    assert float(fedlc_loss(Z, 1e-6)) == pytest.approx(held, abs=1e-6)


def test_the_gradient_is_0_at_a_missing_class_and_sums_to_0_over_classes() -> None:
    """τ = 1, all classes in the denominator, first sample."""
    g = slope(1.0)
    assert g[0].tolist() == pytest.approx([-0.2180097, 0.1437549, 0.0, 0.0742548], abs=1e-7)
    assert g[:, 2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(g.sum(-1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("missing", ["mask", "soft"])
def test_without_the_true_class_in_the_denominator_its_gradient_is_minus_one_over_the_batch(
    missing: str,
) -> None:
    g = slope(1.0, "others", missing)
    assert [float(g[i, Y[i]]) for i in range(2)] == [-0.5, -0.5]
    torch.testing.assert_close(g.sum(-1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0, 10.0])
def test_equal_counts_give_the_cross_entropy_for_every_strength(tau: float) -> None:
    assert float(fedlc_loss(Z, tau, counts=(9, 9, 9, 9))) == pytest.approx(CROSS_ENTROPY, abs=1e-7)


def test_the_loss_without_the_true_class_has_no_lower_bound() -> None:
    """Twice as far is twice as low, where the usual cross-entropy stays above 0."""
    far = torch.tensor([[100.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]], dtype=torch.float64)
    near, further = (float(fedlc_loss(z, 0.1, "others")) for z in (far, 2 * far))
    assert further < near - 99 < -198
    assert float(fedlc_loss(2 * far, 0.1)) >= 0


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_fedlc_without_strength_has_no_head(denominator: str) -> None:
    """0 · ∞ is not a number, and a mask alone is not FedAvg."""
    assert fedlc(0.0, denominator).head is None


def test_the_switches_choose_the_ingredient() -> None:
    assert fedlc().head == CalibratedLogits(0.5, "mask")
    assert fedlc(1.0, "others", "soft").head == OtherClasses(1.0, "soft")


@pytest.mark.parametrize("denominator", ["all", "others"])
@pytest.mark.parametrize("missing", ["mask", "soft"])
def test_every_variant_trains_and_stays_finite(denominator: str, missing: str) -> None:
    """Client 2 of the federation holds one class. So with the mask there is no other for its denominator."""
    method = build_method("fedlc", {"denominator": denominator, "missing": missing})
    tiny = Tiny(method).run(3, [0, 1, 2, 3])
    assert bool(torch.isfinite(tiny.server.w.flat).all())
    assert all(abs(done.loss) < 200 for done in tiny.last.values())


# FedVLS: vacant classes learnt from the downloaded model, other logits suppressed (Guo et al. 2025).


def taught(counts: tuple[int, ...], teacher: Tensor = TEACHER) -> Context:
    return holder(counts).replace(net=lambda model, x: (teacher, teacher))


def vacant(z: Tensor, counts: tuple[int, ...] = TWO_MISSING, teacher: Tensor = TEACHER) -> Tensor:
    return VacantDistillation(1.0).loss(forward(z, Y), taught(counts, teacher))


def suppressed(z: Tensor, form: str = "paper", y: Tensor = Y) -> Tensor:
    return suppression(z, y, torch.tensor(TWO_MISSING), form)


def test_the_three_losses_of_the_worked_example() -> None:
    """60 and 40 samples of two classes, two classes vacant; the code's suppression with its weight 0.005."""
    prior = BalancedSoftmax(1.0, missing="eps")
    assert float(cross_entropy(prior.logits(Z, holder(TWO_MISSING)), Y)) == pytest.approx(0.3411569, abs=1e-7)
    assert float(vacant(Z)) == pytest.approx(0.3003514, abs=1e-7)
    assert float(suppressed(Z)) == pytest.approx(-0.3731472, abs=1e-7)
    assert 0.005 * float(suppressed(Z, "code")) == pytest.approx(-0.000815042, abs=1e-9)


@pytest.mark.parametrize("method", [fedvls(suppress=0.0), fedvls(lam=0.0), fedvls(0.0, suppress_form="code")])
def test_with_either_term_it_is_another_method(method: Method) -> None:
    """Client 2 holds one class of three, so two are vacant there; the others hold classes to suppress."""
    mine, theirs = (Tiny(m).run(1, [0, 1, 2, 3]) for m in (method, priorce(missing="eps")))
    assert not same_bits(mine.server.w, theirs.server.w)


def test_the_suppression_pushes_each_class_by_its_share_where_the_sample_is_of_another_class() -> None:
    """∂/∂z_ic = p_c 1(y_i ≠ c) e^{z_ic}/Σ_j 1(y_j ≠ c) e^{z_jc}: columns sum to p_c."""
    z = Z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(suppressed(z), z)
    wanted = torch.tensor([[0.0, 0.4, 0.0, 0.0], [0.6, 0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(slope, wanted, rtol=0, atol=1e-7)
    more = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(suppressed(more, y=torch.arange(9) % 2), more)
    assert slope.sum(0).tolist() == pytest.approx([0.6, 0.4, 0.0, 0.0], abs=1e-7)
    assert float(slope[0, 0]) == float(slope[1, 1]) == 0.0


def test_a_class_that_fills_the_batch_is_skipped_in_the_papers_form_and_counts_1_in_the_codes() -> None:
    """All samples of class 0: its mean would be 0, whose logarithm is −∞."""
    z = Z.clone().requires_grad_()
    loss = suppressed(z, y=torch.tensor([0, 0]))
    column = Z[:, 1].exp().mean().log()
    assert float(loss.detach()) == pytest.approx(0.4 * float(column), abs=1e-7)
    assert torch.autograd.grad(loss, z)[0][:, 0].tolist() == [0.0, 0.0]
    shifted = (Z[:, 1] - math.log(0.4) + math.log(0.25)).exp().mean().log()
    assert float(suppressed(Z, "code", torch.tensor([0, 0]))) == pytest.approx(0.4 * float(shifted), abs=1e-6)


def test_a_common_shift_of_the_logits_shifts_the_papers_form_alone() -> None:
    assert float(suppressed(Z - 3)) == pytest.approx(float(suppressed(Z)) - 3, abs=1e-6)
    assert float(suppressed(Z - 300, "code")) > -1  # the batch's own classes count 1


def test_the_distillation_touches_vacant_classes_only_and_its_rows_sum_to_0() -> None:
    z = Z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(vacant(z), z)
    share, wanted = Z[:, 2:].softmax(-1), TEACHER[:, 2:].softmax(-1)
    assert slope[:, :2].abs().max() == 0
    torch.testing.assert_close(slope[:, 2:], (share - wanted) / 2)


@pytest.mark.parametrize("counts", [ONE_MISSING, (10, 10, 10, 10)])
def test_with_one_vacant_class_or_none_the_distillation_is_0(counts: tuple[int, ...]) -> None:
    z = Z.clone().requires_grad_()
    loss = vacant(z, counts)
    assert float(loss.detach()) == 0.0
    assert not torch.autograd.grad(loss, z)[0].any()


def test_the_distillation_is_0_where_student_and_teacher_agree_on_the_vacant_classes() -> None:
    """Whatever they say of the others, and up to a shift of each sample."""
    moved = Z + torch.tensor([[5.0, -2.0, 1.0, 1.0], [0.0, 3.0, -4.0, -4.0]], dtype=torch.float64)
    assert float(vacant(Z, teacher=moved)) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_first_step_of_the_distillation_changes_nothing_without_batchnorm(mode: str) -> None:
    """Teacher and student are one model then. With BatchNorm that is so only in training mode."""
    for norm, same in ((False, True), (True, mode == "train")):
        local = replace(PLAIN, batch_size=64)
        method = fedvls(5.0, suppress=0.0, teacher=mode)
        mine, plain = (
            Tiny(m, net=network(norm), local=local).visit(2).trained.w
            for m in (method, priorce(missing="eps"))
        )
        assert (float((mine - plain).sq_norm()) < 1e-12) == same


def test_the_factory_puts_together_what_its_switches_say() -> None:
    made = fedvls(0.5, 0.01, "code", "train")
    assert made.head == BalancedSoftmax(1.0, missing="eps")
    assert made.terms == (VacantDistillation(0.5, "train"), LogitSuppression(0.01, "code"))
    assert fedvls().terms == (VacantDistillation(0.1, "eval"), LogitSuppression(0.005, "paper"))

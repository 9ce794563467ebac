"""FedVLS: vacant classes learnt from the downloaded model, other logits suppressed (Guo et al. 2025)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.methods.common import BalancedSoftmax
from raffed.methods.fedvls import LogitSuppression, VacantDistillation, fedvls, suppression
from raffed.methods.priorce import priorce
from tests.laws.test_equalities import SETTINGS
from tests.tiny import PLAIN, Tiny, forward, network, same_bits
from tests.worked import ONE_MISSING, TEACHER, TWO_MISSING, Y, Z, holder


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


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_both_terms_it_is_priorce_with_eps_bit_for_bit(setting: str) -> None:
    mine, theirs = (SETTINGS[setting](m).run(3) for m in (fedvls(0.0, 0.0), priorce(missing="eps")))
    assert same_bits(mine.everything(), theirs.everything())


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

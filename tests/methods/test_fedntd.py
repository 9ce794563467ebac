"""FedNTD (Lee et al. 2022): the distillation of the classes that are not a sample's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.methods.fedavg import fedavg
from raffed.methods.fedntd import NotTrueDistillation, fedntd
from tests.tiny import PLAIN, Tiny, bare_context, forward, network, same_bits

Z = torch.tensor([[1.0, 0.5, -0.5, 0.0], [0.2, 1.5, 0.3, -1.0]], dtype=torch.float64)
TEACHER = torch.tensor([[0.5, 0.0, 1.0, -1.0], [0.0, 0.4, 0.8, 0.2]], dtype=torch.float64)
Y = torch.tensor([0, 1])


def told(counts: tuple[int, ...] = (25, 25, 25, 25), teacher: Tensor = TEACHER) -> Context:
    """The context of a client whose downloaded model gives these logits."""
    return bare_context(class_counts=torch.tensor(counts), net=lambda state, x: (teacher, x))


def value_and_slope(term: NotTrueDistillation, z: Tensor, k: Context) -> tuple[float, Tensor]:
    live = z.clone().requires_grad_()
    loss = term.loss(forward(live, Y, live), k)
    return float(loss.detach()), torch.autograd.grad(loss, live)[0]


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 0.3394410), (3.0, 0.3739996)])
def test_its_value_is_tau_squared_times_the_divergence_over_the_classes_that_are_not_true(
    tau: float, expected: float
) -> None:
    """Logits Z, teacher TEACHER, labels 0 and 1. Twice the β is twice the value."""
    value, _ = value_and_slope(NotTrueDistillation(1.0, tau), Z, told())
    assert value == pytest.approx(expected, abs=5e-8)
    assert value_and_slope(NotTrueDistillation(2.0, tau), Z, told())[0] == pytest.approx(2 * value)


@pytest.mark.parametrize("tau", [1.0, 3.0])
def test_its_gradient_is_the_difference_of_shares_and_nothing_at_the_true_class(tau: float) -> None:
    """∂/∂z = τ (q − q_g)/B over c ≠ y, so rows sum to 0."""
    _, slope = value_and_slope(NotTrueDistillation(1.0, tau), Z, told())
    for row, true in enumerate(Y.tolist()):
        others = [c for c in range(4) if c != true]
        q, taught = ((logits[row, others] / tau).softmax(-1) for logits in (Z, TEACHER))
        torch.testing.assert_close(slope[row, others], tau * (q - taught) / 2)
        assert float(slope[row, true]) == 0.0
    assert slope.sum(-1).tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
    if tau == 1.0:
        assert slope[0].tolist() == pytest.approx([0.0, 0.1308760, -0.2394586, 0.1085827], abs=5e-8)


def test_what_the_teacher_says_of_the_true_class_does_not_matter() -> None:
    moved = TEACHER.clone()
    moved[0, 0], moved[1, 1] = 50.0, -50.0
    term = NotTrueDistillation(1.0, 2.0)
    a, b = (value_and_slope(term, Z, told(teacher=one)) for one in (TEACHER, moved))
    assert a[0] == b[0]
    assert torch.equal(a[1], b[1])


def test_with_two_classes_it_is_0() -> None:
    """One class is left over, with share 1 on both sides."""
    value, slope = value_and_slope(NotTrueDistillation(1.0, 1.0), Z[:, :2], told(teacher=TEACHER[:, :2]))
    assert value == 0.0
    assert not slope.any()


def first_step(teacher: str, **net: float | bool) -> float:
    """The squared distance of FedNTD to FedAvg after one step on all data, in a later round of the run."""
    local = replace(PLAIN, batch_size=64)
    tiny = Tiny(fedntd(5.0, teacher=teacher), net=network(**net), local=local).run(2, [1, 2, 3])  # type: ignore[arg-type]
    plain = Tiny(fedavg(), net=network(**net), local=local)  # type: ignore[arg-type]
    plain.server = tiny.server
    return float((tiny.visit(0).trained.w - plain.visit(0).trained.w).sq_norm())


def test_the_first_step_is_fedavgs_where_the_student_is_the_teacher() -> None:
    """In evaluation mode that needs a network without BatchNorm and dropout, in training mode it does not."""
    assert first_step("eval") < 1e-14
    assert first_step("eval", norm=True) > 1e-8
    assert first_step("eval", dropout=0.3) > 1e-8
    assert first_step("train", norm=True, dropout=0.3) < 1e-14


def test_the_teacher_is_the_downloaded_model_throughout_the_round() -> None:
    """The second step on the same data differs from FedAvg's, since the student has moved and it has not."""
    tiny = Tiny(fedntd(), local=replace(PLAIN, batch_size=64, epochs=2)).run(1)
    plain = Tiny(fedavg(), local=tiny.local)
    plain.server = tiny.server
    sent = tiny.server.broadcast()
    assert float((tiny.visit(0).trained.w - plain.visit(0).trained.w).sq_norm()) > 1e-8
    assert same_bits(tiny.visit(0).start.w, sent.w)


def test_in_training_mode_the_teacher_moves_no_statistic() -> None:
    """BatchNorm's statistics after training are the student's alone: FedAvg's in a round of one step."""
    local = replace(PLAIN, batch_size=64)
    mine, plain = (
        Tiny(m, net=network(norm=True), local=local).visit(1) for m in (fedntd(teacher="train"), fedavg())
    )
    assert same_bits(mine.trained.b, plain.trained.b)

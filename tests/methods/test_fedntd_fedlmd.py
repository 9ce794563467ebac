"""What the downloaded model teaches of some classes: FedNTD, FedLMD."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.ingredients import Term
from raffed.methods.fedavg import fedavg
from raffed.methods.fedlmd import LabelMaskingDistillation, fedlmd
from raffed.methods.fedntd import NotTrueDistillation, fedntd
from tests.laws.test_equalities import SETTINGS
from tests.tiny import PLAIN, Tiny, bare_context, clients, forward, network, of_kind, same_bits
from tests.worked import TEACHER, Y, Z

# FedNTD (Lee et al. 2022): the distillation of the classes that are not a sample's own.


def told(counts: tuple[int, ...] = (25, 25, 25, 25), teacher: Tensor = TEACHER) -> Context:
    """The context of a client whose downloaded model gives these logits."""
    return bare_context(class_counts=torch.tensor(counts), net=lambda state, x: (teacher, x))


def value_and_slope(term: Term, k: Context, z: Tensor = Z, y: Tensor = Y) -> tuple[float, Tensor]:
    live = z.clone().requires_grad_()
    loss = of_kind(term.loss(forward(live, y, live), k), Tensor)
    return float(loss.detach()), torch.autograd.grad(loss, live)[0]


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 0.3394410), (3.0, 0.3739996)])
def test_its_value_is_tau_squared_times_the_divergence_over_the_classes_that_are_not_true(
    tau: float, expected: float
) -> None:
    """Logits Z, teacher TEACHER, labels 0 and 1. Twice the β is twice the value."""
    value, _ = value_and_slope(NotTrueDistillation(1.0, tau), told())
    assert value == pytest.approx(expected, abs=5e-8)
    assert value_and_slope(NotTrueDistillation(2.0, tau), told())[0] == pytest.approx(2 * value)


@pytest.mark.parametrize("tau", [1.0, 3.0])
def test_its_gradient_is_the_difference_of_shares_and_nothing_at_the_true_class(tau: float) -> None:
    """∂/∂z = τ (q − q_g)/B over c ≠ y, so rows sum to 0."""
    _, slope = value_and_slope(NotTrueDistillation(1.0, tau), told())
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
    a, b = (value_and_slope(term, told(teacher=one)) for one in (TEACHER, moved))
    assert a[0] == b[0]
    assert torch.equal(a[1], b[1])


def test_with_two_classes_it_is_0() -> None:
    """One class is left over, with share 1 on both sides."""
    value, slope = value_and_slope(NotTrueDistillation(1.0, 1.0), told(teacher=TEACHER[:, :2]), Z[:, :2])
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


# FedLMD (Lu et al. 2023): the distillation of a client's minority classes.

S, S2 = (
    (80, 15, 0, 5),
    (60, 40, 0, 0),
)  # samples of each class; class 0, and classes 0 and 1, are the majority


@pytest.mark.parametrize(
    ("counts", "tau", "teacher", "expected"),
    [
        (S, 1.0, "eval", 0.5734002),
        (S, 3.0, "eval", 2.4067697),
        (S, 1.0, "none", 0.4083138),
        (S2, 1.0, "eval", 0.9220022),
    ],
)
def test_its_value_is_the_divergence_from_the_teacher_s_shares_of_the_minority_classes(
    counts: tuple[int, ...], tau: float, teacher: str, expected: float
) -> None:
    value, _ = value_and_slope(LabelMaskingDistillation(1.0, tau, teacher), told(counts))
    assert value == pytest.approx(expected, abs=5e-8)
    twice, _ = value_and_slope(LabelMaskingDistillation(2.0, tau, teacher), told(counts))
    assert twice == pytest.approx(2 * value)


def test_without_a_teacher_the_shares_of_the_minority_classes_are_equal() -> None:
    """−log m − mean log q over m classes: 1, 2 and 3 for sample 0, 2 and 3 for sample 1."""
    value, _ = value_and_slope(LabelMaskingDistillation(1.0, 1.0, "none"), told(S))
    q0, q1 = Z[0, [1, 2, 3]].log_softmax(-1), Z[1, [0, 2, 3]].log_softmax(-1)
    expected = (-torch.tensor(3.0).log() - q0.mean() - torch.tensor(2.0).log() - q1[1:].mean()) / 2
    assert value == pytest.approx(float(expected), rel=1e-6)


def test_its_gradient_pushes_a_majority_class_down_that_is_not_the_true_one() -> None:
    """It is 0 at the true class, and rows sum to 0."""
    _, slope = value_and_slope(LabelMaskingDistillation(1.0, 1.0), told(S))
    assert [float(slope[0, 0]), float(slope[1, 1])] == [0.0, 0.0]
    assert slope.sum(-1).tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
    assert slope[1].tolist() == pytest.approx([0.2077823, 0.0, -0.0931932, -0.1145890], abs=5e-8)


@pytest.mark.parametrize("setting", SETTINGS)
def test_clients_with_equal_counts_of_all_classes_train_as_in_fedntd(setting: str) -> None:
    """No class is of the majority then. The value of FedNTD's example is 0.3394410."""
    value, _ = value_and_slope(LabelMaskingDistillation(1.0, 1.0), told((25, 25, 25, 25)))
    assert value == pytest.approx(0.3394410, abs=5e-8)
    tinies = [SETTINGS[setting](m) for m in (fedlmd(), fedntd())]
    for one in tinies:
        one.data = clients(((0, 1, 2),) * 4, (12, 12, 6, 6))
        one.run(3)
    assert same_bits(tinies[0].server, tinies[1].server)


def test_a_sample_of_the_only_minority_class_counts_nothing() -> None:
    """The authors' form has 64.42 there: the teacher's mass lies on the class that the student lacks."""
    counts, y = (40, 40, 40, 5), torch.tensor([3])
    for teacher in ("eval", "none"):
        term = LabelMaskingDistillation(1.0, 1.0, teacher)
        value, slope = value_and_slope(term, told(counts, TEACHER[:1]), Z[:1], y)
        assert value == 0.0
        assert not slope.any()
    beside, _ = value_and_slope(LabelMaskingDistillation(1.0, 1.0), told(counts), Z, torch.tensor([3, 1]))
    alone, _ = value_and_slope(
        LabelMaskingDistillation(1.0, 1.0), told(counts, TEACHER[1:]), Z[1:], torch.tensor([1])
    )
    assert beside == pytest.approx(alone / 2, rel=1e-12)  # still the mean over both samples


def test_a_class_that_the_client_lacks_is_of_the_minority_and_one_at_the_mean_too() -> None:
    """Counts 6, 3, 3, 0 have the mean 3: only class 0 is masked, as with counts 5, 1, 1, 1."""
    term = LabelMaskingDistillation(1.0, 1.0)
    assert value_and_slope(term, told((6, 3, 3, 0)))[0] == value_and_slope(term, told((5, 1, 1, 1)))[0]
    assert value_and_slope(term, told((6, 3, 3, 0)))[0] != value_and_slope(term, told((6, 4, 2, 0)))[0]


def test_without_a_teacher_the_downloaded_model_is_not_asked() -> None:
    def fails(*_: object) -> tuple[Tensor, Tensor]:
        raise AssertionError("the downloaded model was asked")

    term = LabelMaskingDistillation(1.0, 1.0, "none")
    assert value_and_slope(term, told(S).replace(net=fails))[0] == value_and_slope(term, told(S))[0]


@pytest.mark.parametrize(("client", "masked"), [(0, True), (1, True), (2, False), (3, True)])
def test_in_a_first_step_it_pulls_where_a_class_is_masked_that_is_not_the_sample_s_own(
    client: int, masked: bool
) -> None:
    """Where none is, the student is the teacher and the gradient is 0. Client 2 has one class alone."""
    local = replace(PLAIN, batch_size=64)
    mine, plain = (Tiny(m, local=local).visit(client) for m in (fedlmd(5.0), fedavg()))
    gap = float((mine.trained.w - plain.trained.w).sq_norm())
    assert gap > 1e-8 if masked else gap < 1e-14

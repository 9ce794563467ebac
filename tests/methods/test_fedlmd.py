"""FedLMD (Lu et al. 2023): the distillation of a client's minority classes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.methods.fedavg import fedavg
from raffed.methods.fedlmd import LabelMaskingDistillation, fedlmd
from raffed.methods.fedntd import fedntd
from tests.laws.test_equalities import SETTINGS
from tests.methods.test_fedntd import TEACHER, Y, Z, told
from tests.tiny import PLAIN, Tiny, clients, forward, same_bits

S, S2 = (
    (80, 15, 0, 5),
    (60, 40, 0, 0),
)  # samples of each class; class 0, and classes 0 and 1, are the majority


def value_and_slope(
    term: LabelMaskingDistillation, k: Context, z: Tensor = Z, y: Tensor = Y
) -> tuple[float, Tensor]:
    live = z.clone().requires_grad_()
    loss = term.loss(forward(live, y, live), k)
    return float(loss.detach()), torch.autograd.grad(loss, live)[0]


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

"""Knowledge transfer from the HPM: KD and MMD (docs/papers/map.md §6 H5-H7, §2.2-2.3)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.core.context import ClientData, Context, Forward
from raffed.core.losses import mmd
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.methods.fedphp import Heirloom, Inheritance, InheritedWhileTraining, fedphp
from raffed.methods.map import map_
from tests.tiny import Tiny, bare_context, forward, network, of_kind, privately_trained, same_bits

EMPTY = State(Params({}), Params({}))


def taught_by(logits: Tensor, z: Tensor | None = None, times: int = 1) -> Context:
    """A context whose HPM answers with these logits and features."""
    answer = (logits, logits if z is None else z)
    return bare_context(mine=Heirloom(EMPTY, torch.tensor(times)), net=lambda state, x: answer)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(6, 3, generator=g, dtype=torch.float64), torch.randn(
        6, 3, generator=g, dtype=torch.float64
    )


def kd_gradient(kd: Inheritance, z: Tensor, teacher: Tensor) -> Tensor:
    z = z.clone().requires_grad_()
    y = torch.zeros(len(z), dtype=torch.int64)
    return torch.autograd.grad(kd.teach(forward(z, y), taught_by(teacher)), z)[0]


@given(st.integers(0, 10**6))
def test_the_kd_gradient_is_that_of_the_chosen_form_per_batch_mean(seed: int) -> None:
    """H5: authors (σ(z) − σ(z^p/4))/B; symmetric (σ(z/4) − σ(z^p/4))/(4B); τ² multiplies by 16. A KL with
    `reduction="mean"` would be smaller by the factor C = 3."""
    z, teacher = batch(seed)
    soft = (teacher / 4).softmax(-1)
    torch.testing.assert_close(kd_gradient(Inheritance(), z, teacher), (z.softmax(-1) - soft) / 6)
    symmetric = ((z / 4).softmax(-1) - soft) / 24
    torch.testing.assert_close(kd_gradient(Inheritance(kd_student_tau=4.0), z, teacher), symmetric)
    torch.testing.assert_close(
        kd_gradient(Inheritance(kd_student_tau=4.0, kd_tau_sq=True), z, teacher), 16 * symmetric
    )


def test_at_student_equal_teacher_the_symmetric_form_is_stationary_and_the_authors_is_not() -> None:
    """H5: the authors' optimum is z = z^p/4 + const."""
    z, _ = batch(1)
    assert float(kd_gradient(Inheritance(kd_student_tau=4.0), z, z).abs().max()) < 1e-12
    assert float(kd_gradient(Inheritance(), z, z).abs().max()) > 0.01
    assert float(kd_gradient(Inheritance(), z / 4 + 7.0, z).abs().max()) < 1e-12


def test_the_kd_value_is_the_cross_entropy_of_eq_11() -> None:
    """Teacher logits (0, 4 log 3), i.e. (¼, ¾); student (0, 0, …): −Σ σ log ½ = log 2."""
    teacher = torch.tensor([[0.0, 4 * math.log(3.0)]])
    f = forward(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    assert float(Inheritance().teach(f, taught_by(teacher))) == pytest.approx(math.log(2))
    f = forward(torch.tensor([[0.0, math.log(3.0)]]), torch.zeros(1, dtype=torch.int64))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(Inheritance().teach(f, taught_by(teacher))) == pytest.approx(entropy)


def test_equal_features_have_no_discrepancy_and_no_gradient() -> None:
    """H6."""
    h = batch(2)[0].requires_grad_()
    loss = mmd(h, h.detach())
    assert abs(float(loss.detach())) < 1e-12
    assert float(torch.autograd.grad(loss, h)[0].abs().max()) < 1e-12


def test_the_hand_example_of_h6() -> None:
    """H6: B = 1, h = 0, h^p = 2: D = 4 off the diagonal, s = 4, bands 1, 2, 4, 8, 16: 2(5 − Σ e^{−4/b}) =
    6.18628.
    """
    value = mmd(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
    assert float(value) == pytest.approx(2 * (5 - sum(math.exp(-4 / b) for b in (1, 2, 4, 8, 16))), rel=1e-6)
    assert float(value) == pytest.approx(6.18628, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 3])
def test_features_that_differ_by_rounding_have_no_discrepancy_and_no_gradient(
    dtype: torch.dtype, rows: int
) -> None:
    """H6 in finite numbers, with all rows alike, so that no distance within a sample widens the bands."""
    g = torch.linspace(0.5, 2.0, 5, dtype=dtype).expand(rows, 5)
    h = (g * (1 + 8 * torch.finfo(dtype).eps)).clone().requires_grad_()
    assert not torch.equal(h, g)
    loss = mmd(h, g)
    assert float(loss.detach()) == 0.0
    assert not torch.autograd.grad(loss, h)[0].any()


def test_a_batch_of_one_sample_is_pulled_by_the_reciprocal_of_its_distance() -> None:
    """§2.2 at B = 1 and ‖h − g‖ = a: s = a², so the slope is −4/a · Σ e^{−1/f}/f, f = 1/4 … 4."""
    slope = 4 * sum(math.exp(-1 / f) / f for f in (0.25, 0.5, 1.0, 2.0, 4.0))
    for a in (0.1, 1.0, 10.0):
        h = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        got = torch.autograd.grad(mmd(h, torch.full((1, 1), a, dtype=torch.float64)), h)[0]
        assert float(got) == pytest.approx(-slope / a, rel=1e-5)


@given(st.integers(0, 10**6), st.permutations(range(6)), st.floats(0.01, 100))
def test_mmd_does_not_see_the_order_of_rows_or_a_common_scale(
    seed: int, order: list[int], scale: float
) -> None:
    """H6, and the two samples may be shuffled apart from one another. The scale holds up to the 1e-8 in s."""
    h, g = batch(seed)
    torch.testing.assert_close(mmd(h[order], g), mmd(h, g))
    torch.testing.assert_close(mmd(scale * h, scale * g), mmd(h, g), rtol=1e-4, atol=1e-6)
    assert float(mmd(h, g)) > 0


def test_what_all_features_have_in_common_costs_mmd_no_digits() -> None:
    """Against D_ij = ‖Z_i − Z_j‖² as it is written, in float64."""
    h, g = (part.float() + 1000.0 for part in batch(3))
    z = torch.cat([h, g]).double()
    between = (z[:, None] - z[None, :]).square().sum(-1)
    s, b = between.sum() / (len(z) * (len(z) - 1)), len(h)
    kernel = sum(torch.exp(-between / (s * factor)) for factor in (0.25, 0.5, 1.0, 2.0, 4.0))
    expected = (kernel[:b, :b] + kernel[b:, b:] - kernel[:b, b:] - kernel[b:, :b]).mean()
    assert float(mmd(h, g)) == pytest.approx(float(expected), rel=1e-4)


def test_the_bandwidth_is_a_detached_statistic_of_the_batch() -> None:
    """§2.2: with s fixed at the batch's value the gradient is that of the kernel alone; B = 1, h = 0, h^p =
    2: d/dh 2(5 − Σ e^{−D/b}) = 2 Σ e^{−4/b}/b · dD/dh, dD/dh = 2(h − h^p) = −4.
    """
    h = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    got = torch.autograd.grad(mmd(h, torch.full((1, 1), 2.0, dtype=torch.float64)), h)[0]
    assert float(got) == pytest.approx(-8 * sum(math.exp(-4 / b) / b for b in (1, 2, 4, 8, 16)), rel=1e-6)


def test_eq_13_is_a_convex_weighting_and_plain_cross_entropy_at_the_first_participation() -> None:
    """§2.3: (1 − λ) L_CE + λ L_KD; z_k = 0: L_CE with weight 1."""
    z, teacher = batch(3)
    f, ce = forward(z, torch.tensor([0, 1, 2, 0, 1, 2])), bare_context().ce
    for kd in (Inheritance(lam=0.3), InheritedWhileTraining(lam=0.3)):
        known, fresh = taught_by(teacher), taught_by(teacher, times=0)
        wanted = 0.7 * ce(f) + 0.3 * kd.teach(f, known)
        extra = kd.loss(f, known)
        torch.testing.assert_close(kd.taught(f, known), wanted)
        assert torch.equal(kd.taught(f, fresh), ce(f))
        if extra is not None:
            torch.testing.assert_close(ce(f) + extra, wanted)
            assert float(kd.loss(f, fresh)) == 0.0  # type: ignore[arg-type]


def test_fedphps_shared_loss_is_eq_13_and_maps_shared_loss_has_no_transfer() -> None:
    z, teacher = batch(4)
    f = forward(z, torch.tensor([0, 1, 2, 0, 1, 2]))
    assert fedphp(lam=0.3).personal.loss(f, taught_by(teacher)) is not None  # type: ignore[union-attr]
    assert map_(lam=0.3).personal.loss(f, taught_by(teacher)) is None  # type: ignore[union-attr]


def test_the_transfer_compares_features_for_mmd_and_logits_for_kd() -> None:
    z, other = batch(5)
    f = forward(z, torch.zeros(6, dtype=torch.int64), logits=torch.zeros(6, 3, dtype=torch.float64))
    same = taught_by(torch.zeros(6, 3, dtype=torch.float64), z=z)
    assert abs(float(Inheritance(transfer="mmd").teach(f, same))) < 1e-12
    torch.testing.assert_close(Inheritance(transfer="mmd").teach(f, taught_by(other, z=other)), mmd(z, other))
    assert float(Inheritance().teach(f, same)) == pytest.approx(math.log(3))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("transfer", ["kd", "mmd"])
@pytest.mark.parametrize("factory", [fedphp, map_])
def test_the_teacher_of_a_second_visit_is_the_clients_own_hpm(
    factory: Callable[..., Method], transfer: str, norm: bool
) -> None:
    """H4: ψ_k as found, in evaluation mode, on the batch's inputs; not the downloaded model, nor the
    initial or trained one.
    """
    tiny = Tiny(factory(lam=0.3, transfer=transfer), net=network(norm)).run(2, [0, 1, 2, 3])
    kept, x, y = tiny.client_states[0].slots["personal"], tiny.data[0].x, tiny.data[0].y
    assert isinstance(kept, Heirloom)
    view = tiny.visit(0).views["personal"].replace(mine=kept)
    g = torch.Generator().manual_seed(9)
    logits, z = torch.randn(8, 3, generator=g), torch.randn(8, 5, generator=g)
    f = Forward(x, y, z, logits, view.w0)
    taught_logits, taught_z = tiny.net.apply(kept.model, x)
    cross = -((taught_logits / 4).softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
    wanted = cross if transfer == "kd" else mmd(z, taught_z)
    personal = of_kind(tiny.method.personal, Inheritance)
    torch.testing.assert_close(personal.teach(f, view), wanted)
    ce = view.ce(f)
    if factory is map_:
        torch.testing.assert_close(personal.private_loss(f, view), 0.7 * ce + 0.3 * wanted)
    else:
        torch.testing.assert_close(personal.loss(f, view), 0.3 * (wanted - ce))


@pytest.mark.parametrize("transfer", ["kd", "mmd"])
def test_with_lambda_1_no_label_enters_stage_2(transfer: str) -> None:
    """H7: stage 2 of a second participation, from the same ω_k with other labels, ends in the same bits."""
    tiny = Tiny(map_(lam=1.0, transfer=transfer), net=network()).run(2, [0, 1])
    view = tiny.last[0].views["personal"].replace(mine=tiny.client_states[0].slots["personal"], private=None)
    plain = tiny.data[0]
    wrong = ClientData(plain.x, plain.y.flip(0), plain.class_counts)
    assert not torch.equal(wrong.y, plain.y)
    ends = [privately_trained(tiny.method, tiny, view, data) for data in (plain, wrong)]
    assert same_bits(ends[0], ends[1])
    assert not same_bits(ends[0], view.state)

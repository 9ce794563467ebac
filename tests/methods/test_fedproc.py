"""FedProc and "baseline + prototypes" (docs/papers/baselines.md, FedProc and Baselines with prototypes)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from raffed.core.method import Method
from raffed.methods.common import ClassSums, Prototypes
from raffed.methods.fedavg import fedavg
from raffed.methods.feddc import feddc
from raffed.methods.feddyn import feddyn
from raffed.methods.fednova import fednova
from raffed.methods.fedproc import PrototypeContrast, fedproc, prototype_contrast, prototype_terms
from raffed.methods.fedprox import fedprox
from raffed.methods.moon import moon
from tests.methods.test_fednova import TWO_STEPS
from tests.tiny import NOISY, PLAIN, Tiny, bare_context, forward, network, of_kind, same_bits

G = torch.Generator().manual_seed(0)
Z = torch.randn(9, 5, generator=G, dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])
C = torch.randn(3, 5, generator=G, dtype=torch.float64)
ALL = torch.ones(3, dtype=torch.bool)
BASELINES = {"FedProx": fedprox, "FedNova": fednova, "MOON": moon, "FedDyn": feddyn, "FedDC": feddc}


def test_round_0_and_rounds_from_t_on_are_fedavg_bit_for_bit() -> None:
    """(1): T = 2; round 1 differs."""
    mine, plain = Tiny(fedproc(), net=network(True), rounds=2), Tiny(fedavg(), net=network(True), rounds=2)
    mine.step([0, 1, 2, 3])
    plain.step([0, 1, 2, 3])
    assert same_bits(mine.server.w, plain.server.w)
    assert not same_bits(mine.visit(1).trained, plain.visit(1).trained)
    late, plain_late = (tiny.server.replace(round=2).broadcast() for tiny in (mine, plain))
    assert same_bits(mine.visit(1, broadcast=late).trained, plain.visit(1, broadcast=plain_late).trained)


@pytest.mark.parametrize(("t", "alpha"), [(1, 0.1), (5, 0.5), (9, 0.9)])
def test_the_cross_entropy_takes_over_linearly(t: int, alpha: float) -> None:
    """α_t = t/T with T = 10: CE + term = α CE + (1 − α) L_pc."""
    k = bare_context(server=Prototypes(C, ALL), round=t)
    k = k.replace(spec=replace(k.spec, rounds=10))
    logits = torch.randn(9, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    f = forward(Z, Y, logits)
    wanted = alpha * k.ce(f) + (1 - alpha) * prototype_contrast(Z, Y, C, ALL)
    assert float(k.ce(f) + PrototypeContrast().loss(f, k)) == pytest.approx(float(wanted), rel=1e-12)


def test_equal_prototypes_give_log_c_and_no_gradient() -> None:
    """(2)."""
    z = Z.clone().requires_grad_()
    loss = prototype_contrast(z, Y, C[:1].expand(3, 5), ALL)
    assert float(loss.detach()) == pytest.approx(math.log(3), rel=1e-12)
    assert float(torch.autograd.grad(loss, z)[0].abs().max()) < 1e-15


def test_it_is_the_formula_written_out_and_does_not_see_the_scale_of_z() -> None:
    """(3)."""
    unit_z, unit_g = Z / Z.norm(dim=1, keepdim=True), C / C.norm(dim=1, keepdim=True)
    share = (unit_z @ unit_g.T).exp()
    wanted = -(share[torch.arange(9), Y] / share.sum(1)).log().mean()
    assert float(prototype_contrast(Z, Y, C, ALL)) == pytest.approx(float(wanted), rel=1e-12)
    z = Z.clone().requires_grad_()
    scaled = prototype_contrast(7.0 * z, Y, 0.1 * C, ALL)
    assert float(scaled.detach()) == pytest.approx(float(wanted), rel=1e-12)
    assert float((torch.autograd.grad(scaled, z)[0] * Z).sum(1).abs().max()) < 1e-15


@pytest.mark.parametrize("classes", [3, 10])
def test_without_a_temperature_it_cannot_fall_below_its_bound(classes: int) -> None:
    """(4): log(1 + (C − 1)e^{−2}), 0.797 for C = 10; reached where own prototype +z and all others −z."""
    bound = math.log(1 + (classes - 1) * math.exp(-2))
    assert classes == 3 or bound == pytest.approx(0.797, abs=5e-4)
    z = torch.ones(1, 4, dtype=torch.float64)
    g = torch.cat([z, -z.expand(classes - 1, 4)])
    loss = prototype_contrast(z, torch.tensor([0]), g, torch.ones(classes, dtype=torch.bool))
    assert float(loss) == pytest.approx(bound, rel=1e-12)


def test_a_class_without_prototype_is_no_anchor_and_counts_1_in_the_denominator() -> None:
    known, poisoned = torch.tensor([True, True, False]), C.clone()
    poisoned[2] = math.nan
    z = Z.clone().requires_grad_()
    loss = prototype_contrast(z, Y, poisoned, known)
    unit_z, unit_g = Z / Z.norm(dim=1, keepdim=True), C / C.norm(dim=1, keepdim=True)
    s = unit_z @ unit_g[:2].T
    anchors = [i for i in range(9) if int(Y[i]) < 2]
    each = [float(-s[i, Y[i]] + torch.log(s[i].exp().sum() + 1)) for i in anchors]
    assert float(loss.detach()) == pytest.approx(sum(each) / len(each), rel=1e-12)
    assert torch.equal(torch.autograd.grad(loss, z)[0][Y == 2], torch.zeros(2, 5, dtype=torch.float64))


def test_at_rate_0_the_prototypes_are_the_class_means_of_all_the_data() -> None:
    """(5)."""
    tiny = Tiny(fedproc(), local=replace(PLAIN, lr=0.0)).run(1, [0, 1, 2, 3])
    x, y = torch.cat([c.x for c in tiny.data]), torch.cat([c.y for c in tiny.data])
    z = tiny.net.apply(tiny.net.initial, x)[1]
    g = of_kind(tiny.server.slots["term-PrototypeContrast"], Prototypes)
    torch.testing.assert_close(
        g.mean, torch.stack([z[y == c].mean(0) for c in range(3)]), rtol=1e-5, atol=1e-6
    )


def test_prototypes_are_of_the_model_after_local_training_in_evaluation_mode_without_augmentation() -> None:
    """FedProc (5): class sums of the final local model, clients' bare data; client 1 holds five of class
    1 and five of class 2.
    """
    tiny = Tiny(fedproc(), net=network(norm=True), augment=NOISY, local=replace(PLAIN, lr=0.1))
    done = tiny.visit(1)
    sums = of_kind(done.upload.slots["term-PrototypeContrast"], ClassSums)
    z = tiny.net.apply(done.trained, tiny.data[1].x)[1]
    wanted = torch.stack([z[tiny.data[1].y == c].sum(0) for c in range(3)])
    torch.testing.assert_close(sums.total, wanted, rtol=1e-5, atol=1e-5)
    assert sums.count.tolist() == [0, 5, 5]
    assert not torch.allclose(
        sums.total[1], tiny.net.apply(done.start, tiny.data[1].x)[1][tiny.data[1].y == 1].sum(0), rtol=1e-2
    )


def test_fedavg_with_prototypes_is_fedproc_bit_for_bit() -> None:
    """Baselines with prototypes."""
    one = Tiny(Method("FedAvg", terms=prototype_terms("fedproc"))).run(3)
    assert same_bits(one.everything(), Tiny(fedproc()).run(3).everything())


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_with_prototypes_is_the_baseline_where_alpha_is_1_and_another_where_not(name: str) -> None:
    """Baselines with prototypes: T = 1 makes α_t ≡ 1."""
    make = BASELINES[name]
    plain, with_them = Tiny(make(), rounds=1).run(3), Tiny(make(prototypes="fedproc"), rounds=1).run(3)  # type: ignore[operator]
    assert same_bits(plain.server.w, with_them.server.w)
    assert not same_bits(plain.server.w, Tiny(make(prototypes="fedproc")).run(3).server.w)  # type: ignore[operator]
    assert not same_bits(plain.server.w, Tiny(make(prototypes="fedmr")).run(3).server.w)  # type: ignore[operator]


def test_fednova_with_prototypes_and_equal_steps_is_fedproc() -> None:
    """Baselines with prototypes, to float accuracy."""
    mine, proc = (Tiny(m, data=TWO_STEPS).run(3) for m in (fednova("fedproc"), fedproc()))
    torch.testing.assert_close(mine.server.w.flat, proc.server.w.flat, rtol=1e-4, atol=1e-5)

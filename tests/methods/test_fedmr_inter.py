"""Prototypes that attract and repel: FedMR's inter-class margin, FedProc."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.core.context import Spec
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.methods.common import ClassSums, Prototypes
from raffed.methods.fedavg import fedavg
from raffed.methods.feddc import feddc
from raffed.methods.feddyn import feddyn
from raffed.methods.fedmr import InterClass, fedmr, inter_class
from raffed.methods.fednova import fednova
from raffed.methods.fedproc import PrototypeContrast, fedproc, prototype_contrast, prototype_terms
from raffed.methods.fedprox import fedprox
from raffed.methods.moon import moon
from tests.methods.test_fednova import TWO_STEPS
from tests.tiny import (
    CLASSES,
    NOISY,
    PLAIN,
    WIDTH,
    Tiny,
    bare_context,
    clients,
    forward,
    network,
    of_kind,
    same_bits,
    shared_objective,
)

# FedMR's inter-class margin, its prototypes and its variants (docs/papers/fedmr.md §10 no. 6-8, §2.2,
# §3, §7).

SLOT = "term-InterClass"
G = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 100.0]])
HAVE = torch.tensor([True, True, False])
Z = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
ALL = torch.ones(3, dtype=torch.bool)


def loss(
    z: Tensor = Z, y: tuple[int, ...] = (0, 0), g: Tensor = G, have: Tensor = HAVE, own: Tensor = ALL
) -> Tensor:
    return inter_class(z, torch.tensor(y), g, have, own, torch.ones(len(z), dtype=z.dtype))


def test_the_hand_example_of_the_sheet() -> None:
    """Test 6: h = (max(1 − 2, 0), max(2 − 1, 0)) = (0, 1), mean 0.5; gradient rows (0, 0) and ½·((1, 0) −
    (−1, 0)) = (1, 0).
    """
    z = Z.clone().requires_grad_()
    value = loss(z)
    assert float(value.detach()) == pytest.approx(0.5, abs=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(value, z)[0], torch.tensor([[0.0, 0.0], [1.0, 0.0]]), atol=1e-6, rtol=0
    )


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_translating_features_and_prototypes_together_changes_nothing(dx: float, dy: float) -> None:
    """Test 6."""
    by = torch.tensor([dx, dy])
    assert float(loss(Z + by, g=G + by)) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("row", [[0.0, 100.0], [0.0, 0.0], [2.0, 0.0]])
def test_a_prototype_nobody_ever_sent_has_no_influence(row: list[float]) -> None:
    """Test 6: row 2 of G; a zero row would be a false negative at the origin."""
    g = torch.cat([G[:2], torch.tensor([row])])
    assert float(loss(g=g)) == pytest.approx(0.5, abs=1e-6)


def by_loops(z: Tensor, y: list[int], g: Tensor, have: list[bool]) -> float:
    """§2.2: mean over anchors' classes c and known j ≠ c of D_cj = mean_n max(‖z_n − g_c‖ − ‖z_n − g_j‖,
    0).
    """
    pairs = []
    for c in sorted(set(y)):
        for j in range(len(g)):
            if have[c] and have[j] and j != c:
                rows = [z[n] for n in range(len(y)) if y[n] == c]
                pairs.append(
                    sum(max(float((r - g[c]).norm() - (r - g[j]).norm()), 0.0) for r in rows) / len(rows)
                )
    return sum(pairs) / len(pairs) if pairs else 0.0


labels = st.lists(st.integers(0, 3), min_size=1, max_size=10)
flags = st.lists(st.booleans(), min_size=4, max_size=4)


@given(st.integers(0, 10**6), labels, flags)
def test_the_dense_loss_is_the_mean_over_ordered_pairs_of_classes(
    seed: int, y: list[int], have: list[bool]
) -> None:
    """Class-balanced: normaliser |C_b ∩ have|(|have| − 1). Unbalanced classes, unknown anchors, one or no
    prototype.
    """
    gen = torch.Generator().manual_seed(seed)
    z, g = torch.randn(len(y), 3, generator=gen), torch.randn(4, 3, generator=gen)
    own = torch.ones(4, dtype=torch.bool)
    got = inter_class(z, torch.tensor(y), g, torch.tensor(have), own, torch.ones(len(y)))
    assert float(got) == pytest.approx(by_loops(z, y, g, have), rel=1e-4, abs=1e-5)


def test_the_literal_reading_takes_negatives_from_the_clients_own_classes_only() -> None:
    """Eq. 4 as printed. z = (1, 0), g = 0, (1.5, 0), (1, 0.1): all: (0.5 + 0.9)/2; own classes {0, 1}:
    0.5.
    """
    g = torch.tensor([[0.0, 0.0], [1.5, 0.0], [1.0, 0.1]])
    f = forward(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    k = bare_context(class_counts=torch.tensor([4, 3, 0]), server=Prototypes(g, ALL))
    assert float(InterClass(1.0).loss(f, k)) == pytest.approx(0.7, abs=1e-5)
    assert float(InterClass(1.0, negatives="local").loss(f, k)) == pytest.approx(0.5, abs=1e-5)
    alone = bare_context(class_counts=torch.tensor([4, 0, 0]), server=Prototypes(g, ALL))
    assert float(InterClass(1.0, negatives="local").loss(f, alone)) == 0.0  # eq. 4 would divide 0 by 0


def test_pull_is_the_distance_to_the_own_prototype_and_l2_compares_unit_vectors() -> None:
    """mean(‖z − g_0‖) = (1 + 2)/2; unit vectors: z/‖z‖ = (1, 0) lies on g_1/‖g_1‖ and 1 from g_0 = 0: h =
    1.
    """
    f, k = forward(Z, torch.tensor([0, 0])), bare_context(server=Prototypes(G, HAVE))
    assert float(InterClass(1.0, mode="pull").loss(f, k)) == pytest.approx(1.5, abs=1e-5)
    assert float(InterClass(1.0, space="l2").loss(f, k)) == pytest.approx(1.0, abs=1e-5)


def test_a_sample_on_its_prototype_has_a_finite_gradient() -> None:
    z = torch.zeros(1, 2, requires_grad=True)
    value = inter_class(z, torch.tensor([0]), G, HAVE, ALL, torch.ones(1), "pull")
    assert bool(torch.isfinite(torch.autograd.grad(value, z)[0]).all())


@pytest.mark.parametrize(
    ("method", "senders"), [(fedmr(), 4), (fedmr(share=0.5), 2), (fedproc(), 4)], ids=["1", "0.5", "FedProc"]
)
@pytest.mark.parametrize("owned", [((0, 1), (1, 2), (0,), (0, 1, 2)), ((0, 1, 2),) * 4])
def test_with_rate_0_prototypes_are_the_centralised_class_means(
    owned: tuple[tuple[int, ...], ...], method: Method, senders: int
) -> None:
    """Test 7, FedProc (5): for any partition; with partial sharing over the sharers' data."""
    tiny = Tiny(method, data=clients(owned), local=replace(PLAIN, lr=0.0))
    (slot,) = tiny.server.slots
    tiny.step([0, 1, 2, 3])
    sharers = [c for c, done in tiny.last.items() if slot in done.upload.slots]
    assert len(sharers) == senders
    x, y = torch.cat([tiny.data[c].x for c in sharers]), torch.cat([tiny.data[c].y for c in sharers])
    z = tiny.net.apply(tiny.net.initial, x)[1].double()
    prototypes = of_kind(tiny.server.slots[slot], Prototypes)
    for c in range(CLASSES):
        assert bool(prototypes.known[c]) == bool((y == c).any())
        mean = z[y == c].mean(0) if (y == c).any() else torch.zeros(WIDTH, dtype=torch.float64)
        torch.testing.assert_close(prototypes.mean[c].double(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "downloaded"),
    [(fedmr(), False), (fedmr(prototype_from="global"), True), (fedproc(), False)],
    ids=["FedMR", "of the downloaded model", "FedProc"],
)
def test_prototypes_come_from_the_trained_model_in_evaluation_mode_without_augmentation(
    method: Method, downloaded: bool
) -> None:
    """A5, FedProc (5): train mode would use batch statistics. With augmentation the sums are those of the
    bare data; client 1 holds five of class 1 and five of class 2.
    """
    tiny = Tiny(method, net=network(norm=True), augment=NOISY).run(1)
    done, data = tiny.visit(1), tiny.data[1]
    (sums,) = (one for one in done.upload.slots.values() if isinstance(one, ClassSums))
    here, there = (
        torch.stack([z[data.y == c].sum(0) for c in range(CLASSES)])
        for z in (tiny.net.apply(one, data.x)[1] for one in (done.trained, done.start))
    )
    torch.testing.assert_close(sums.total, there if downloaded else here, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(here, there, rtol=1e-2)
    assert sums.count.tolist() == [0, 5, 5]


def test_one_hot_prototypes_are_fixed_unit_vectors_known_from_the_first_round_that_nobody_sends() -> None:
    """§7: g_c = e_c, scale 1. By hand in round 0, μ2 = 1: z = (2, 0, 0, 0, 0) of class 1 is √5 from e_1, 1
    from e_0 and √5 from e_2: ((√5 − 1) + 0)/2.
    """
    tiny = Tiny(fedmr(mu2=1.0, prototype_from="one_hot"))
    before = of_kind(tiny.server.slots[SLOT], Prototypes)
    assert before.mean.tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert before.known.tolist() == [True, True, True]
    f, k = forward(torch.tensor([[2.0, 0, 0, 0, 0]]), torch.tensor([1])), bare_context(server=before)
    assert float(InterClass(1.0, source="one_hot").loss(f, k)) == pytest.approx((5**0.5 - 1) / 2, abs=1e-6)
    first = {client: done.trained for client, done in tiny.step([0, 1, 2, 3]).items()}
    assert all(done.upload.slots == {} for done in tiny.last.values())
    assert same_bits(tiny.server.slots[SLOT], before)
    without = Tiny(fedmr(mu2=0.0)).step([0, 1, 2, 3])
    assert not any(same_bits(first[client], without[client].trained) for client in first)


def test_one_hot_prototypes_need_a_feature_for_every_class() -> None:
    """Two features for ten classes, of LeNet-2d."""
    with pytest.raises(UsageError, match="2 features for 10 classes"):
        InterClass(1.0, source="one_hot").server_init(Params({}), Spec(10, 2, 4, 1))
    assert InterClass(1.0).server_init(Params({}), Spec(10, 2, 4, 1)).mean.shape == (10, 2)


def test_a_class_absent_from_a_round_keeps_its_last_prototype_bit_for_bit() -> None:
    """A6: no decay, no average over time. Client 2 holds class 0 only."""
    tiny = Tiny(fedmr()).run(1, [0, 1])
    before = tiny.server.slots[SLOT]
    tiny.step([2])
    after = tiny.server.slots[SLOT]
    assert isinstance(before, Prototypes)
    assert isinstance(after, Prototypes)
    assert torch.equal(before.mean[1:], after.mean[1:])
    assert not torch.equal(before.mean[0], after.mean[0])
    assert after.known.tolist() == [True, True, True]


def test_a_prototype_is_weighted_by_samples_of_the_class_over_this_rounds_uploaders() -> None:
    """§3: (2·1 + 6·5)/8 = 4 of two clients with 2 and 6 samples and means 1 and 5."""
    sums = ClassSums(torch.tensor([[2.0 * 1 + 6 * 5], [0.0]]), torch.tensor([8, 0]))
    got = Prototypes(torch.tensor([[9.0], [7.0]]), torch.tensor([True, False])).updated(sums)
    assert got.mean.tolist() == [[4.0], [7.0]]
    assert got.known.tolist() == [True, False]


def test_classes_of_non_sharers_never_get_a_prototype_and_the_sharers_stay_the_same() -> None:
    """Test 8: each class owned by one client, half share: known for their classes only, for ever; the
    loss stays finite.
    """
    tiny = Tiny(fedmr(share=0.5), data=clients(((0,), (1,), (2,), (2,))))
    sharers = set()
    for _ in range(4):
        done = tiny.step([0, 1, 2, 3])
        sharers.add(tuple(c for c in done if SLOT in done[c].upload.slots))
        assert all(one.loss < 20 for one in done.values())
    assert len(sharers) == 1
    (chosen,) = sharers
    assert len(chosen) == 2
    owned = {0: 0, 1: 1, 2: 2, 3: 2}
    known = tiny.server.slots[SLOT].known.tolist()  # type: ignore[union-attr]
    assert known == [c in {owned[k] for k in chosen} for c in range(3)]


def test_a_non_sharer_sends_weights_and_a_count_only_but_hears_the_prototypes() -> None:
    tiny = Tiny(fedmr(share=0.0)).run(1)
    assert all(done.upload.slots == {} for done in tiny.last.values())
    assert SLOT in tiny.server.broadcast().slots


def test_lite_uses_that_many_samples_of_each_batch_without_replacement_and_draws_anew() -> None:
    """§7: Lite-10/50: 0/1 weights that sum to `lite`, or to the whole batch where it is smaller."""
    term, g = InterClass(1.0, lite=3), torch.Generator().manual_seed(0)
    draws = [term.draw(8, bare_context(), g) for _ in range(6)]
    for one in draws:
        assert one is not None
        assert sorted(one.tolist()) == [0.0] * 5 + [1.0] * 3
    assert len({tuple(one.tolist()) for one in draws if one is not None}) > 1
    whole = term.draw(2, bare_context(), g)
    assert whole is not None
    assert whole.tolist() == [1.0, 1.0]
    assert InterClass(1.0).draw(8, bare_context(), g) is None


def test_lite_with_a_whole_batch_is_the_full_loss_and_less_is_not() -> None:
    full = Tiny(fedmr(mu2=1.0)).run(3).server
    assert same_bits(Tiny(fedmr(mu2=1.0, lite=4)).run(3).server, full)
    assert not same_bits(Tiny(fedmr(mu2=1.0, lite=1)).run(3).server.w, full.w)


def test_the_local_objective_is_eq_5() -> None:
    """ℓ = CE + μ₁ ℓ_intra + μ₂ ℓ_inter. Two samples of class 0 at (1, 0), (2, 0), logits 0: CE = log 3,
    ℓ_intra = 0 (the second feature is dead, so no correlation), ℓ_inter = 0.5; with four samples (1, 1), (2,
    2): ρ = 1, ℓ_intra = 3²/4 = 2.25.
    """
    method, k = fedmr(0.3, 0.2), bare_context(server=Prototypes(G, HAVE))
    views = {slot: k for slot, _ in method.ingredients()}
    two = forward(Z, torch.tensor([0, 0]), logits=torch.zeros(2, 3))
    assert float(shared_objective(method, views)(two, 0)) == pytest.approx(math.log(3) + 0.2 * 0.5, abs=1e-5)
    # Far from ε; far from g: hinge 0
    z = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]) * 1000
    g = Prototypes(torch.tensor([[2500.0, 2500.0], [9e4, 9e4], [0.0, 0.0]]), HAVE)
    four = forward(z, torch.zeros(4, dtype=torch.int64), logits=torch.zeros(4, 3))
    value = shared_objective(method, {slot: k.replace(server=g) for slot in views})(four, 0)
    assert float(value) == pytest.approx(math.log(3) + 0.3 * 2.25, abs=1e-4)


def test_prototypes_are_constants_of_the_loss() -> None:
    """§2.2: g has no gradient, and what the server sends carries none."""
    server = InterClass(1.0).server_init(Params({}), Spec(CLASSES, WIDTH, 4, 4))
    assert server.mean.shape == (CLASSES, WIDTH)
    assert not server.mean.requires_grad
    assert not bool(server.known.any())


# FedProc and "baseline + prototypes" (docs/papers/baselines.md, FedProc and Baselines with prototypes).

DRAWS = torch.Generator().manual_seed(0)
FEATURES = torch.randn(9, 5, generator=DRAWS, dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])
CENTRES = torch.randn(3, 5, generator=DRAWS, dtype=torch.float64)
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
    k = bare_context(server=Prototypes(CENTRES, ALL), round=t)
    k = k.replace(spec=replace(k.spec, rounds=10))
    logits = torch.randn(9, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    f = forward(FEATURES, LABELS, logits)
    wanted = alpha * k.ce(f) + (1 - alpha) * prototype_contrast(FEATURES, LABELS, CENTRES, ALL)
    assert float(k.ce(f) + PrototypeContrast().loss(f, k)) == pytest.approx(float(wanted), rel=1e-12)


def test_equal_prototypes_give_log_c_and_no_gradient() -> None:
    """(2)."""
    z = FEATURES.clone().requires_grad_()
    loss = prototype_contrast(z, LABELS, CENTRES[:1].expand(3, 5), ALL)
    assert float(loss.detach()) == pytest.approx(math.log(3), rel=1e-12)
    assert float(torch.autograd.grad(loss, z)[0].abs().max()) < 1e-15


def test_it_is_the_formula_written_out_and_does_not_see_the_scale_of_z() -> None:
    """(3)."""
    unit_z, unit_g = (
        FEATURES / FEATURES.norm(dim=1, keepdim=True),
        CENTRES / CENTRES.norm(dim=1, keepdim=True),
    )
    share = (unit_z @ unit_g.T).exp()
    wanted = -(share[torch.arange(9), LABELS] / share.sum(1)).log().mean()
    assert float(prototype_contrast(FEATURES, LABELS, CENTRES, ALL)) == pytest.approx(
        float(wanted), rel=1e-12
    )
    z = FEATURES.clone().requires_grad_()
    scaled = prototype_contrast(7.0 * z, LABELS, 0.1 * CENTRES, ALL)
    assert float(scaled.detach()) == pytest.approx(float(wanted), rel=1e-12)
    assert float((torch.autograd.grad(scaled, z)[0] * FEATURES).sum(1).abs().max()) < 1e-15


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
    known, poisoned = torch.tensor([True, True, False]), CENTRES.clone()
    poisoned[2] = math.nan
    z = FEATURES.clone().requires_grad_()
    loss = prototype_contrast(z, LABELS, poisoned, known)
    unit_z, unit_g = (
        FEATURES / FEATURES.norm(dim=1, keepdim=True),
        CENTRES / CENTRES.norm(dim=1, keepdim=True),
    )
    s = unit_z @ unit_g[:2].T
    anchors = [i for i in range(9) if int(LABELS[i]) < 2]
    each = [float(-s[i, LABELS[i]] + torch.log(s[i].exp().sum() + 1)) for i in anchors]
    assert float(loss.detach()) == pytest.approx(sum(each) / len(each), rel=1e-12)
    assert torch.equal(torch.autograd.grad(loss, z)[0][LABELS == 2], torch.zeros(2, 5, dtype=torch.float64))


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

"""GLDP (docs/papers/gldp.md §2, §4, §5, §6, §10)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context, Received
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.server import Mean
from raffed.methods.common import ClassSums, Prototypes, class_mean_sums
from raffed.methods.fedrep import fedrep
from raffed.methods.gldp import (
    Relations,
    Remembered,
    RoundStart,
    gldp,
    global_relation,
    local_relation,
    moving_mean,
)
from tests.tiny import (
    PLAIN,
    Tiny,
    activity,
    bare_context,
    client_data,
    forward,
    network,
    of_kind,
    same_bits,
    server_context,
)

G = torch.Generator().manual_seed(0)
Z = torch.randn(12, 7, generator=G, dtype=torch.float64)
OLD = torch.randn(4, 7, generator=G, dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1, 3, 3, 0])
ALL = torch.ones(4, dtype=torch.bool)
SOME = torch.tensor([True, True, True, False])
SAMPLE = "feature_softmax_sample"


def test_the_first_exchange_is_plain_cross_entropy_bit_for_bit() -> None:
    """1: FedRep with the same passes and uniform means."""
    plain = Method("x", split=gldp().split, passes=gldp(0.5, 0.5, 1.0, 2.0).passes, mean=Mean(by="clients"))
    mine, bare = Tiny(gldp(0.5, 0.5, 1.0, 2.0), net=network(True)), Tiny(plain, net=network(True))
    mine.step([0, 1, 2, 3])
    bare.step([0, 1, 2, 3])
    assert same_bits([mine.server.w, mine.server.b], [bare.server.w, bare.server.b])
    mine.step([0, 1, 2, 3])
    bare.step([0, 1, 2, 3])
    assert not same_bits(mine.server.w, bare.server.w)


def test_the_global_relations_gradient_and_its_decomposition() -> None:
    """2: 2(C_B − C̃)/(B d); per-sample MSE = L_GP + variance within classes. Tolerance 1e-12."""
    z = Z.clone().requires_grad_()
    loss = global_relation(z, Y, OLD, SOME)
    own = torch.stack([Z[c == Y].mean(0) for c in range(4)])
    wanted = torch.where(SOME[Y][:, None], 2 * (own - OLD)[Y] / (12 * 7), 0.0)
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], wanted, rtol=1e-12, atol=1e-12)
    whole, each = global_relation(Z, Y, OLD, ALL), global_relation(Z, Y, OLD, ALL, "per_sample")
    within = (Z - own[Y]).square().sum() / (12 * 7)
    assert float(each) == pytest.approx(float(whole + within), rel=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_local_relations_gradient_is_q_minus_p_over_t_and_b(temperature: float) -> None:
    """3: rows sum to 0, unknown classes feel nothing, a shift of all features is not seen."""
    z = Z.clone().requires_grad_()
    loss = local_relation(z, Y, OLD, SOME, SAMPLE, temperature)
    (slope,) = torch.autograd.grad(loss, z)
    p, q = (OLD[Y] / temperature).softmax(-1), (Z / temperature).softmax(-1)
    wanted = torch.where(SOME[Y][:, None], (q - p) / (temperature * 12), 0.0)
    torch.testing.assert_close(slope, wanted, rtol=1e-12, atol=1e-12)
    assert float(slope.sum(1).abs().max()) < 1e-15
    shifted = local_relation(Z + 3.0, Y, OLD, SOME, SAMPLE, temperature)
    assert float(shifted) == pytest.approx(float(loss.detach()), rel=1e-10)
    assert float(local_relation(OLD[Y] + 1.0, Y, OLD, ALL, SAMPLE, temperature)) == pytest.approx(
        0.0, abs=1e-15
    )


def test_the_sample_form_is_never_below_the_class_form_and_equal_for_equal_features() -> None:
    """4: Jensen."""
    sample, grouped = (
        float(local_relation(Z, Y, OLD, ALL, form, 1.0)) for form in (SAMPLE, "feature_softmax_class")
    )
    assert sample > grouped > 0
    same = torch.stack([Z[0], Z[1], Z[2], Z[3]])[Y]
    values = [
        float(local_relation(same, Y, OLD, SOME, form, 1.0)) for form in (SAMPLE, "feature_softmax_class")
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_small_shifts_weigh_alike_in_both_relations() -> None:
    """§4: L_LP ≈ ½ Var(δ), the mean-reduced MSE ≈ σ²: for σ = 0.2 about 0.02 and 0.04."""
    g = torch.Generator().manual_seed(1)
    old = torch.randn(1, 512, generator=g, dtype=torch.float64)
    z = old + 0.2 * torch.randn(64, 512, generator=g, dtype=torch.float64)
    y, known = torch.zeros(64, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    assert float(local_relation(z, y, old, known, SAMPLE, 1.0)) == pytest.approx(0.02, abs=0.004)
    assert float(global_relation(z, y, old, known, "per_sample")) == pytest.approx(0.04, abs=0.004)


def poisoned(**nan: bool) -> Context:
    bad, good = torch.full((3, 5), math.nan), torch.ones(3, 5)
    known = torch.ones(3, dtype=torch.bool)
    return bare_context(
        mine=Remembered(bad if "mine" in nan else good, known),
        server=Prototypes(bad if "server" in nan else good, known),
    )


@pytest.mark.parametrize(("lam", "where"), [(0.0, "mine"), (1.0, "server")])
def test_a_relation_with_factor_0_is_not_computed(lam: float, where: str) -> None:
    """5: λ = 0 with Ĉ full of NaN, λ = 1 with C̃ full of NaN: finite, and the other relation alone."""
    z, y = torch.randn(6, 5, generator=torch.Generator().manual_seed(2)), torch.tensor([0, 1, 2, 0, 1, 2])
    f, one, known = forward(z, y, torch.zeros(6, 3)), torch.ones(3, 5), torch.ones(3, dtype=torch.bool)
    loss = Relations(lam, 0.5).loss(f, poisoned(**{where: True}))
    alone = local_relation(z, y, one, known, SAMPLE, 1.0) if lam else global_relation(z, y, one, known)
    assert float(loss) == pytest.approx(float(alone), rel=1e-6)
    assert not math.isfinite(float(Relations(0.5, 0.5).loss(f, poisoned(**{where: True}))))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_moving_average_inserts_and_then_averages(beta: float) -> None:
    """6: β²c₁ + β(1 − β)c₂ + (1 − β)c₃; a fresh class equals its C exactly."""
    c = [torch.full((1, 5), v) for v in (1.0, 5.0, -3.0)]
    held, mean, known = torch.tensor([True]), torch.full((1, 5), 77.0), torch.tensor([False])
    for value in c:
        mean, known = moving_mean(mean, known, value, held, beta), held
        assert value is not c[0] or torch.equal(mean, c[0])
    torch.testing.assert_close(mean, beta**2 * c[0] + beta * (1 - beta) * c[1] + (1 - beta) * c[2])
    assert torch.equal(moving_mean(mean, known, c[0], torch.tensor([False]), beta), mean)


def told_of_class_0(mean: float) -> Received:
    """Two clients hold class 0, and the mean of their class means is this."""
    total = torch.zeros(3, 5)
    total[0] = 2 * mean
    return Received(2, sum=ClassSums(total, torch.tensor([2, 0, 0])))


def test_the_servers_prototypes_are_inserted_and_then_averaged_with_beta() -> None:
    """Eq. 11 with β = 0.3 and means 1, 5, −3: 0.09 · 1 + 0.21 · 5 − 0.7 · 3 = −0.96."""
    rule, spec = Relations(0.5, 0.3), bare_context().spec
    s = rule.server_init(Params({}), spec)
    for mean in (1.0, 5.0, -3.0):
        s = rule.server_step(s, told_of_class_0(mean), spec)
    torch.testing.assert_close(s.mean, torch.tensor([-0.96, 0.0, 0.0])[:, None].expand(3, 5))
    assert s.known.tolist() == [True, False, False]


def test_a_clients_memory_is_inserted_and_then_averaged_with_beta() -> None:
    """Eq. 9 with β = 0.25 and features 1, then 5: 0.25 · 1 + 0.75 · 5 = 4."""
    rule, k = Relations(0.5, 0.25), bare_context(class_counts=torch.tensor([2, 0, 0]))
    mine = rule.client_init(k)
    for value, wanted in ((1.0, 1.0), (5.0, 4.0)):
        batch = torch.full((2, 5), value), torch.zeros(2, dtype=torch.int64)
        mine, _ = rule.finish(k.replace(mine=mine, features=lambda _, batch=batch: iter([batch])))
        assert mine.mean.tolist() == [[wanted] * 5, [0.0] * 5, [0.0] * 5]
    assert mine.known.tolist() == [True, False, False]


def test_a_snapshot_sends_what_was_known_before_the_round_whatever_its_stages_have_told_since() -> None:
    """A7, two stages, β = 0.3, means 1, 5, −3: C̃ = 1, 3.8, −0.96; sent after them: nothing, 3.8, 3.8."""
    rule = RoundStart(0.3)
    own, spec = rule.init(Params({})), replace(bare_context().spec, rounds_per_cycle=2)
    seen = []
    for round, mean in enumerate((1.0, 5.0, -3.0)):
        k = server_context(spec=spec, round=round, received={"personal": told_of_class_0(mean)})
        own, w = rule.step(own, Params({}), Params({"w": torch.ones(1)}), k)
        assert w["w"].tolist() == [1.0]
        sent = of_kind(rule.extra_broadcast(own)["personal"], Prototypes)
        seen.append((round_to(own.now.mean[0, 0]), round_to(sent.mean[0, 0]), sent.known.tolist()))
    unknown, known = [False] * 3, [True, False, False]
    assert seen == [(1.0, 0.0, unknown), (3.8, 3.8, known), (-0.96, 3.8, known)]


def round_to(value: torch.Tensor) -> float:
    return round(float(value), 5)


def staged(snapshot: bool, gp: str, rounds_per_cycle: int = 2) -> Tiny:
    tiny = Tiny(gldp(0.5, 0.5, 1.0, 1.0, lp="none", gp=gp, proto_snapshot=snapshot))  # type: ignore[arg-type]
    tiny.spec = replace(tiny.spec, rounds_per_cycle=rounds_per_cycle)
    tiny.arrange()
    return tiny


def test_with_a_snapshot_no_stage_of_the_first_round_is_pulled_to_prototypes_and_the_next_round_is() -> None:
    """A7: two stages; without it the second exchange has those of the first. One exchange a round: no
    difference.
    """
    refreshed = staged(False, "class_mean")
    snapshot = staged(True, "class_mean")
    without = staged(True, "none")
    same = []
    for _ in range(3):
        for tiny in (refreshed, snapshot, without):
            tiny.step([0, 1, 2, 3])
        same.append(
            (same_bits(snapshot.server.w, without.server.w), same_bits(refreshed.server.w, without.server.w))
        )
    assert same == [(True, True), (True, False), (False, False)]
    each, usual = staged(True, "class_mean", 1).run(3), staged(False, "class_mean", 1).run(3)
    assert same_bits(
        [each.server.w, each.server.slots["personal"]], [usual.server.w, usual.server.slots["personal"]]
    )


@pytest.mark.parametrize(("norm", "body"), [(True, 1), (False, 2)])
def test_a_last_batch_of_one_is_left_out_of_the_body_s_epoch_where_there_is_batch_norm(
    norm: bool, body: int
) -> None:
    """§6: n = 5, B = 4: one step on the body instead of two, two on the head."""
    tiny = Tiny(
        gldp(0.5, 0.5, 1.0, 1.0), net=network(norm), data=[client_data(5, (0, 1), i) for i in range(4)]
    )
    assert tiny.visit(0).steps == body + 2
    assert replace(tiny, method=gldp(0.5, 0.5, 1.0, 0.0)).visit(0).steps == body
    assert replace(tiny, method=gldp(0.5, 0.5, 3.0, 0.0)).visit(0).steps == 3 * body


def test_the_servers_prototypes_are_uniform_over_clients() -> None:
    """7: 1 and 99 samples with prototypes 0 and 1 → 0.5; a class nobody holds stays bit for bit."""
    told = []
    for n, value in ((1, 0.0), (99, 1.0)):
        z, y = torch.full((n, 5), value), torch.zeros(n, dtype=torch.int64)
        features = lambda _, z=z, y=y: iter([(z, y)])  # noqa: E731
        told.append(class_mean_sums(bare_context(class_counts=torch.tensor([n, 0, 0]), features=features)))
    got = Received(2, sum=ClassSums(told[0].total + told[1].total, told[0].count + told[1].count))
    before = Prototypes(torch.tensor([[0.0] * 5, [0.1] * 5, [0.0] * 5]), torch.tensor([False, True, False]))
    after = Relations(0.5, 0.5).server_step(before, got, bare_context().spec)
    assert after.mean[0].tolist() == [0.5] * 5
    assert torch.equal(after.mean[1], before.mean[1])
    assert after.known.tolist() == [True, True, False]


def test_bodies_are_averaged_uniformly() -> None:
    """§10 no. 8 and §8: sizes 8 and 6. What travels is in tests/golden/wire.txt."""
    tiny = Tiny(gldp(0.5, 0.5, 1.0, 1.0), net=network(True))
    done = tiny.step([0, 2])
    torch.testing.assert_close(
        tiny.server.w.flat, ((done[0].upload.w + done[2].upload.w) / 2).flat, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("norm", [False, True])
def test_each_phase_rests_what_it_does_not_train(norm: bool) -> None:
    """9: momentum 0.9, weight decay 0.1."""
    strong = replace(PLAIN, momentum=0.9, weight_decay=0.1)
    for body, head, moves in ((1.0, 0.0, "body."), (0.0, 1.0, "head.")):
        tiny = Tiny(gldp(0.5, 0.5, body, head), net=network(norm), local=strong).run(1, [0, 1, 2, 3])
        done = tiny.visit(1)
        for n in done.start.w.names:
            assert torch.equal(done.start.w[n], done.trained.w[n]) != n.startswith(moves), n
        assert same_bits(done.start.b, done.trained.b) == (moves == "head." or not norm)


@pytest.mark.parametrize("inference", ["lp", "gp"])
def test_prediction_ignores_the_head_and_never_names_a_class_without_prototype(inference: str) -> None:
    """10: client 1 holds classes 1 and 2."""
    tiny = Tiny(gldp(0.5, 0.5, 1.0, 1.0, inference=inference)).run(2, [0, 1])
    done, personal = tiny.visit(1), tiny.method.personal
    assert personal is not None
    x = tiny.data[3].x
    view = done.views["personal"]
    noise = Params(
        {n: torch.randn_like(t) if n.startswith("head") else t for n, t in view.w.tensors.items()}
    ).clone()
    other = view.replace(state=State(noise, view.state.b))
    assert torch.equal(personal.predict(x, view), personal.predict(x, other))
    if inference == "lp":
        assert set(personal.predict(x, view).argmax(-1).tolist()) <= {1, 2}


def test_features_at_their_prototypes_are_all_right_and_the_chain_falls_back() -> None:
    """§10 no. 10; §6: without Ĉ the global prototypes decide, without those the head."""
    protos, nothing = torch.eye(3, 5) * 3, torch.zeros(3, dtype=torch.bool)
    everything = torch.ones(3, dtype=torch.bool)
    net = lambda state, x: (torch.tensor([[0.0, 0.0, 1.0]]).expand(3, 3), protos)  # noqa: E731
    cases = (
        (everything, everything, [0, 1, 2]),
        (nothing, everything, [0, 1, 2]),
        (nothing, nothing, [2, 2, 2]),
    )
    for mine, server, wanted in cases:
        k = bare_context(net=net, mine=Remembered(protos, mine), server=Prototypes(protos, server))
        assert Relations(0.5, 0.5).predict(torch.zeros(3, 4), k).argmax(-1).tolist() == wanted


def test_class_means_do_not_depend_on_the_batch_size_or_the_order() -> None:
    """11: eq. 6 over the whole data in evaluation mode."""
    tiny = Tiny(gldp(0.5, 0.5, 1.0, 1.0), net=network(True)).run(1, [0, 1])
    done, data = tiny.last[1], tiny.data[1]
    z = tiny.net.apply(done.trained, data.x)[1]
    kept = of_kind(tiny.client_states[1].slots["personal"], Remembered)
    for c in (1, 2):
        torch.testing.assert_close(kept.mean[c], z[data.y == c].mean(0), rtol=1e-5, atol=1e-6)
    assert kept.known.tolist() == [False, True, True]


def test_head_first_without_relations_is_fedrep_with_uniform_means_bit_for_bit() -> None:
    """13: three rounds, all weights; GLDP answers by prototypes all the same."""
    rep = replace(fedrep(2.0, 1.0), mean=Mean(by="clients"))
    mine = Tiny(gldp(0.5, 0.5, 1.0, 2.0, order="head_first", lp="none", gp="none"), net=network(True)).run(
        3, [0, 1, 2, 3]
    )
    plain = Tiny(rep, net=network(True)).run(3, [0, 1, 2, 3])
    assert same_bits(mine.server.w, plain.server.w)
    assert isinstance(mine.server.slots["personal"], Prototypes)
    with_both = Tiny(gldp(0.5, 0.5, 1.0, 2.0, order="head_first"), net=network(True)).run(3, [0, 1, 2, 3])
    assert not same_bits(with_both.server.w, plain.server.w)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_without_body_epochs_the_server_stands_still_and_prototypes_are_those_of_the_first_network(
    beta: float,
) -> None:
    """14: for every β, full participation."""
    tiny = Tiny(gldp(0.5, beta, 0.0, 1.0)).run(3, [0, 1, 2, 3])
    torch.testing.assert_close(tiny.server.w.flat, tiny.method.split.shared(tiny.net.initial.w).flat)
    z = [tiny.net.apply(tiny.net.initial, c.x)[1] for c in tiny.data]
    g = of_kind(tiny.server.slots["personal"], Prototypes)
    for c in range(3):
        means = [z[i][d.y == c].mean(0) for i, d in enumerate(tiny.data) if int(d.class_counts[c])]
        torch.testing.assert_close(g.mean[c], torch.stack(means).mean(0), rtol=1e-4, atol=1e-5)


def test_both_inferences_train_the_same_bits() -> None:
    lp, gp = (Tiny(gldp(0.5, 0.5, 1.0, 1.0, inference=name)).run(3) for name in ("lp", "gp"))
    assert same_bits(lp.everything(), gp.everything())


@pytest.mark.parametrize("form", ["feature_softmax_class", "logits", "l1", "mse"])
def test_the_other_forms_change_the_second_round(form: str) -> None:
    """Switches of §4; l1 is for non-negative features, so it is only called by hand here."""
    if form == "l1":
        z = Z.abs()
        assert float(local_relation(z, Y, z[:4], ALL, form, 1.0)) > 0
        assert float(local_relation(OLD.abs()[Y], Y, OLD.abs(), ALL, form, 1.0)) == pytest.approx(
            0.0, abs=1e-12
        )
        return
    usual, other = (Tiny(gldp(1.0, 0.5, 1.0, 1.0, lp=name)).run(2, [0, 1]) for name in (SAMPLE, form))
    assert not same_bits(usual.server.w, other.server.w)


# GLDP's terms and answers in numbers (docs/papers/gldp.md §4 to §6, A12; §9).

CORNERS = 3 * torch.eye(3, 5)
EVERY, ONE = torch.ones(3, dtype=torch.bool), torch.tensor([False, True, False])


def answers(z: Tensor, mine: Remembered, server: Prototypes, **choices: str) -> list[int]:
    """What is answered for features z [B, 5] under a head that says class 2."""
    head = torch.tensor([[0.0, 0.0, 1.0]]).expand(len(z), 3)
    k = bare_context(net=lambda state, x: (head, z), mine=mine, server=server)
    return Relations(0.5, 0.5, **choices).predict(torch.zeros(len(z), 4), k).argmax(-1).tolist()  # type: ignore[arg-type]


def test_the_two_answers_are_by_the_servers_and_by_the_clients_own_prototypes() -> None:
    """Eq. 13: the server's corners are 0, 1, 2, the client's 1, 2, 0."""
    server, mine = Prototypes(CORNERS, EVERY), Remembered(CORNERS[[2, 0, 1]], EVERY)
    assert answers(CORNERS, mine, server, inference="gp") == [0, 1, 2]
    assert answers(CORNERS, mine, server, inference="lp") == [1, 2, 0]


def test_candidates_are_all_known_classes_or_those_that_the_client_has_seen() -> None:
    """A12: the client has seen class 1 alone; z lies at prototype 0."""
    server, mine = Prototypes(CORNERS, EVERY), Remembered(CORNERS, ONE)
    assert answers(CORNERS[:1], mine, server, inference="gp", candidates="all") == [0]
    assert answers(CORNERS[:1], mine, server, inference="gp", candidates="seen") == [1]


def test_a_class_that_the_server_does_not_know_is_never_answered() -> None:
    """§10 no. 10: z at the corner of class 0, of which the server holds a mean that it does not know to
    be one.
    """
    server, mine = Prototypes(CORNERS, torch.tensor([False, True, True])), Remembered(CORNERS, EVERY)
    z = CORNERS[:1] + 0.1 * CORNERS[2]
    assert answers(z, mine, server, inference="gp") == [2]


W0, B0 = torch.tensor([[math.log(2), 0.0], [0.0, 0.0], [0.0, 0.0]]), torch.tensor([0.0, math.log(2), 0.0])


def test_lp_logits_compares_the_old_prototype_under_the_old_head_with_what_the_head_says_now() -> None:
    """§4: Ĉ = (1, 7): W0 Ĉ + b0 = (ln 2, ln 2, 0), so p = (2, 2, 1)/5; the logits now are (ln 3, 0, 0), q =
    (3, 1, 1)/5.

        KL = 0.4 ln(2/3) + 0.4 ln 2 + 0.2 ln 1. The other sample's class is not known: half of it.
    """
    mine = Remembered(torch.tensor([[1.0, 7.0], [9.0, 9.0], [9.0, 9.0]]), torch.tensor([True, False, False]))
    start = State(Params({"head.weight": W0, "head.bias": B0}), Params({}))
    now = Params({"head.weight": -W0, "head.bias": -B0})
    logits = torch.tensor([[math.log(3), 0.0, 0.0], [5.0, 0.0, 0.0]])
    f = forward(torch.ones(2, 2), torch.tensor([0, 1]), logits, now)
    k = bare_context(mine=mine, start=start, server=Prototypes(torch.zeros(3, 2), ~EVERY))
    wanted = 0.4 * math.log(2 / 3) + 0.4 * math.log(2)
    assert float(Relations(1.0, 0.5, "logits").loss(f, k)) == pytest.approx(wanted / 2, rel=1e-5)
    assert float(Relations(0.3, 0.5, "logits").loss(f, k)) == pytest.approx(0.3 * wanted / 2, rel=1e-5)


ONE_STEP = replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)


def test_lp_logits_acts_on_the_head_as_well() -> None:
    """§6: one step without momentum: W ← W − η Σ_j ((q_j − e_{y_j}) + λ (q_j − p_{y_j})) z_jᵀ/B, p under
    the head as it was.
    """
    tiny = Tiny(gldp(0.4, 0.5, 0.0, 1.0, lp="logits"), local=ONE_STEP).run(1, [0, 1, 2, 3])
    kept, data, start = tiny.client_states[1].slots["personal"], tiny.data[1], tiny.visit(1).start
    assert isinstance(kept, Remembered)
    w, b = start.w["head.weight"], start.w["head.bias"]
    logits, z = activity(start.w, data.x)
    q, p = logits.softmax(-1), (kept.mean[data.y] @ w.T + b).softmax(-1)
    error = (q - torch.eye(3)[data.y]) + 0.4 * (q - p)
    done = tiny.visit(1).trained.w
    torch.testing.assert_close(done["head.weight"], w - 0.1 * error.T @ z / len(z), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(done["head.bias"], b - 0.1 * error.mean(0), rtol=1e-5, atol=1e-6)


def test_no_other_form_acts_on_the_head_nor_does_this_one_with_factor_0() -> None:
    """§6: only CE has a gradient there."""
    plain = Tiny(gldp(0.0, 0.5, 0.0, 1.0, lp="none"), local=ONE_STEP).run(2, [0, 1, 2, 3])
    for lam, lp, same in (
        (0.5, SAMPLE, True),
        (0.5, "mse", True),
        (0.0, "logits", True),
        (0.5, "logits", False),
    ):
        tiny = Tiny(gldp(lam, 0.5, 0.0, 1.0, lp=lp), local=ONE_STEP).run(2, [0, 1, 2, 3])  # type: ignore[arg-type]
        assert same_bits(tiny.client_states[1].v, plain.client_states[1].v) == same, lp
    assert (
        [one.cross_entropy_only for one in gldp(0.0, lp="logits").passes]
        == [one.cross_entropy_only for one in gldp().passes]
        == [False, True]
    )


def test_the_temperature_and_the_factor_reach_the_local_relation() -> None:
    """λ KL(softmax(Ĉ/2) ‖ softmax(z/2)) with Ĉ = 2 (ln 2, 0, …), z = 0, D = 5: p = (2, 1, 1, 1, 1)/6, q =
    1/5.
    """
    old = torch.zeros(3, 5)
    old[:, 0] = 2 * math.log(2)
    k = bare_context(mine=Remembered(old, EVERY), server=Prototypes(torch.zeros(3, 5), ~EVERY))
    f = forward(torch.zeros(4, 5), torch.tensor([0, 1, 2, 0]), torch.zeros(4, 3))
    wanted = math.log(10 / 6) / 3 + 4 / 6 * math.log(5 / 6)
    assert float(Relations(0.3, 0.5, temperature=2.0).loss(f, k)) == pytest.approx(0.3 * wanted, rel=1e-5)


def test_mse_is_the_mean_square_and_l1_compares_shares() -> None:
    """§4: z − Ĉ = 2 everywhere gives 4; Ĉ = (1, 3) and z = (2, 2): 0.25 ln 0.5 + 0.75 ln 1.5."""
    old = torch.tensor([[1.0, 3.0]])
    y = torch.zeros(3, dtype=torch.int64)
    known = torch.ones(1, dtype=torch.bool)
    assert float(local_relation(old.expand(3, 2) + 2, y, old, known, "mse", 1.0)) == pytest.approx(4.0)
    wanted = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert wanted == pytest.approx(0.1308, abs=5e-5)
    assert float(local_relation(torch.full((3, 2), 2.0), y, old, known, "l1", 1.0)) == pytest.approx(
        wanted, abs=2e-6
    )


def test_no_gradient_reaches_the_memories_or_the_head_and_any_uneven_shift_is_felt() -> None:
    """§10 no. 3: neither Ĉ, C̃ nor ν; L_LP > 0 unless all coordinates move alike."""
    g = torch.Generator().manual_seed(0)
    z, old, centres, w = (torch.randn(n, 5, generator=g).requires_grad_() for n in (6, 3, 3, 3))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    k: Context = bare_context(mine=Remembered(old, EVERY), server=None)
    f = forward(z, y, z @ w.T)
    losses = [Relations(1.0, 0.5, lp).loss(f, k) for lp in (SAMPLE, "feature_softmax_class", "mse")]
    losses += [global_relation(z, y, centres, EVERY, form) for form in ("class_mean", "per_sample")]
    for loss in losses:
        found = torch.autograd.grad(loss, [z, old, centres, w], allow_unused=True, retain_graph=True)
        assert found[0] is not None
        assert found[0].abs().max() > 0
        assert found[1:] == (None, None, None)
    shift = torch.tensor([0.1, 0.0, 0.0, 0.0, 0.0])
    assert float(local_relation(old[y].detach() + shift, y, old.detach(), EVERY, SAMPLE, 1.0)) > 1e-4


def test_the_defaults_are_the_papers() -> None:
    """§9: λ = β = 0.5; t = 10 of 30 local epochs (A4), T = 1; body first, refreshed prototypes (A3, A7)."""
    paper = (0.5, 0.5, 10.0, 20.0, SAMPLE, "class_mean", 1.0, "body_first", "lp", "all", False)
    assert gldp() == gldp(*paper)  # type: ignore[arg-type]

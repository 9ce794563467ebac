"""What trains beside the shared model: FedROD, FLDA, APFL (docs/papers/baselines-personal.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from raffed.core.params import Params
from raffed.core.round import ClientRound, between_rounds
from raffed.core.training.session import Participant
from raffed.methods.apfl import AdaptiveMixedModel, apfl
from raffed.methods.common import BalancedSoftmax, Companion
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrod import PersonalHead, fedrod
from raffed.methods.flda import GATE, MixedExperts, drawn_gate, flda, mixture
from raffed.methods.solo import solo
from tests.tiny import (
    PLAIN,
    Tiny,
    activity,
    bare_context,
    clients,
    companion,
    forward,
    network,
    of_kind,
    same_bits,
    slopes,
    tiny_loss,
)
from tests.tiny import companion as own

# FLDA's private expert and gate: where they start, and one visit by hand.

STILL = replace(PLAIN, lr=0.0)
ONE_STEP = replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)


def gate(p: Params) -> Params:
    return p.only(GATE)


def test_the_private_expert_starts_as_a_fresh_draw_that_is_the_same_for_all_clients_and_in_all_rounds() -> (
    None
):
    """Independent of G: every tensor has G's entries in another order, so that it is as wide; constants
    stay.
    """
    tiny = Tiny(flda(), net=network(norm=True), local=STILL)
    tiny.step([0, 1])
    tiny.server = Tiny(flda(), net=network(norm=True)).run(2, [0, 1]).server
    tiny.step([2])  # a first visit in round 2, when G has moved
    first, initial = own(tiny, 0), tiny.net.initial.w
    assert same_bits(first, own(tiny, 1))
    assert same_bits(first, own(tiny, 2))
    assert set(first.names) == {*initial.names, *GATE}
    for n in initial.names:
        assert torch.equal(first[n].flatten().sort().values, initial[n].flatten().sort().values)
        assert torch.equal(first[n], initial[n]) == n.startswith("body.norm.")
    other = Tiny(flda(), net=network(norm=True), local=STILL, seed=1)
    other.step([0])
    assert not same_bits(own(other, 0), first)


def test_the_authors_gate_starts_as_a_draw_of_torchs_linear_layer_that_is_the_same_for_all_clients() -> None:
    """U(−1/√d, 1/√d), d the width of the features: 5 here, and 10,000 by hand for its moments (variance
    1/(3 d)).
    """
    tiny = Tiny(flda("authors"), local=STILL)
    tiny.step([0, 1])
    first = gate(own(tiny, 0))
    assert same_bits(first, gate(own(tiny, 1)))
    assert 0 < float(first.flat.abs().max()) <= 5**-0.5
    assert len({v for t in first.tensors.values() for v in t.tolist()}) == 6
    other = Tiny(flda("authors"), local=STILL, seed=1)
    other.step([0])
    assert not same_bits(gate(own(other, 0)), first)
    wide = drawn_gate(10_000, run_seed=0)
    assert wide.shape == (10_001,)
    assert float(wide.abs().max()) <= 0.01
    assert float(wide.var()) == pytest.approx(1e-4 / 3, rel=0.03)
    assert float(wide.mean()) == pytest.approx(0.0, abs=3 * (1e-4 / 3 / 10_001) ** 0.5)


def test_the_gate_moves_in_a_clients_first_visit() -> None:
    """From an expert that is G it could not: both would get the same gradient, and the gate none."""
    tiny = Tiny(flda())
    tiny.step([0])
    assert float(gate(own(tiny, 0)).flat.abs().max()) > 1e-3


def by_hand(shared: Params, private: Params, x: Tensor) -> Tensor:
    """The mixture's logits from the formula, the gate on the shared features."""
    (logits, z), (expert, _) = (activity(p, x) for p in (shared, private))
    alpha = 1 / (1 + (-(z @ private["gate.weight"] + private["gate.bias"])).exp())
    return alpha[:, None] * logits + (1 - alpha[:, None]) * expert


def joint_step(
    loss: Callable[[Params, Params], Tensor], done: ClientRound, begun: tuple[Params, Params], own: Params
) -> None:
    """The shared and the private weights have gone one step of rate 0.1 along the gradient of one loss."""
    w, v = (Params({n: t.clone().requires_grad_() for n, t in p.tensors.items()}) for p in begun)
    value = loss(w, v)
    assert done.loss == pytest.approx(float(value.detach()), rel=1e-5)
    for start, moved in ((w, done.trained.w), (v, own)):
        grads = torch.autograd.grad(value, list(start.tensors.values()), retain_graph=True)
        for (n, t), slope in zip(start.tensors.items(), grads, strict=True):
            torch.testing.assert_close(moved[n], t.detach() - 0.1 * slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("preset", "times"), [("original", 1.0), ("authors", 2.0)])
def test_a_second_visit_is_one_joint_step_on_the_mixture_and_predicts_with_it(
    preset: str, times: float
) -> None:
    """With a gate that is not at 0: G, π_k, u_k and b_k step along the gradient of the mixture's CE;
    scored is the mixture.
    """
    tiny = Tiny(flda(preset), local=ONE_STEP).run(1, [0, 1])
    g = torch.Generator().manual_seed(3)
    client_state = tiny.client_states[1]
    turned = {"gate.weight": torch.randn(5, generator=g), "gate.bias": torch.tensor([0.3])}
    kept = Params({**own(tiny, 1).tensors, **turned}).clone()
    tiny.client_states[1] = client_state.replace(slots={"personal": Companion(kept)})
    done, x, y = tiny.visit(1), tiny.data[1].x, tiny.data[1].y
    assert done.steps == 1
    after = of_kind(done.client_state.slots["personal"], Companion)
    joint_step(
        lambda w, v: times * F.cross_entropy(by_hand(w, v, x), y), done, (done.start.w, kept), after.own
    )
    personal = tiny.method.personal
    assert personal is not None
    torch.testing.assert_close(
        done.personal_logits(personal, x), by_hand(done.trained.w, after.own, x), rtol=1e-5, atol=1e-6
    )


def with_own(tiny: Tiny, client: int, **changes: torch.Tensor) -> None:
    """Change some of a client's companions."""
    client_state = tiny.client_states[client]
    changed = Companion(Params({**own(tiny, client).tensors, **changes}).clone())
    tiny.client_states[client] = client_state.replace(slots={**client_state.slots, "personal": changed})


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_balanced_softmax_is_the_plain_one_when_all_counts_are_equal(gamma: float) -> None:
    """FedROD (b)."""
    a, k = torch.randn(5, 3, dtype=torch.float64), bare_context(class_counts=torch.tensor([4, 4, 4]))
    logits = BalancedSoftmax(gamma).logits(a, k)
    torch.testing.assert_close(logits.log_softmax(-1), a.log_softmax(-1))


@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_its_gradient_is_the_softmax_with_prior_minus_one_hot_and_0_for_missing_classes(gamma: float) -> None:
    """FedROD (c): no NaN from log 0."""
    a, y = torch.randn(6, 3, dtype=torch.float64).requires_grad_(), torch.tensor([0, 1, 0, 0, 1, 0])
    k = bare_context(class_counts=torch.tensor([4, 2, 0]))
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(BalancedSoftmax(gamma).logits(a, k), y), a)
    weights = torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64).pow(gamma) * a.detach().exp()
    wanted = weights / weights.sum(-1, keepdim=True) - torch.eye(3, dtype=torch.float64)[y]
    torch.testing.assert_close(g, wanted / 6)
    assert torch.equal(g[:, 2], torch.zeros(6, dtype=torch.float64))


def test_the_generic_heads_missing_rows_stay_bit_for_bit_without_weight_decay() -> None:
    """FedROD (d): client 0 holds classes 0 and 1 of 3."""
    done = Tiny(fedrod(), local=replace(PLAIN, weight_decay=0.0)).visit(0)
    moved = [
        not torch.equal(done.trained.w["head.weight"][c], done.start.w["head.weight"][c]) for c in range(3)
    ]
    assert moved == [True, True, False]


def test_the_shared_model_does_not_depend_on_the_personal_heads() -> None:
    """FedROD (e): replace V_k, same upload; the joint preset does depend on it."""
    for preset, same in (("original", True), ("authors", False)):
        tiny = Tiny(fedrod(preset=preset)).run(1, [0, 1, 2, 3])
        before = tiny.visit(1)
        with_own(tiny, 1, **{"head.weight": torch.randn(3, 5, generator=torch.Generator().manual_seed(1))})
        after = tiny.visit(1)
        assert same_bits(before.upload, after.upload) == same
        assert not same_bits(before.client_state, after.client_state)


def test_with_a_zero_personal_head_both_scores_use_the_same_logits() -> None:
    """FedROD (f)."""
    tiny = Tiny(fedrod()).run(1, [0, 1])
    view = tiny.context(1, "personal", mine=Companion(own(tiny, 1).zeros()))
    state = PersonalHead().model(view)
    assert same_bits(
        tiny.net.apply(state, tiny.data[1].x), tiny.net.apply(tiny.last[1].trained, tiny.data[1].x)
    )


def test_the_personal_prediction_is_the_sum_of_both_heads() -> None:
    tiny = Tiny(fedrod()).run(2, [0, 1])
    done, x = tiny.last[1], tiny.data[1].x
    logits, z = tiny.net.apply(done.trained, x)
    wanted = logits + z @ own(tiny, 1)["head.weight"].T + own(tiny, 1)["head.bias"]
    torch.testing.assert_close(tiny.net.apply(done.personal_state(tiny.method), x)[0], wanted)


def test_a_gate_wide_open_leaves_the_private_model_alone_and_trains_fedavgs() -> None:
    """FLDA (a): b_k = +40, u_k = 0, no decay."""
    local = replace(PLAIN, weight_decay=0.0)
    tiny, plain = Tiny(flda(), local=local).run(1, [0, 1]), Tiny(fedavg(), local=local)
    plain.server = tiny.server
    with_own(tiny, 1, **{"gate.bias": torch.full((1,), 40.0), "gate.weight": torch.zeros(5)})
    before, done = own(tiny, 1), tiny.visit(1)
    after = done.client_state.slots["personal"].own  # type: ignore[attr-defined]
    assert all(float((before[n] - after[n]).abs().max()) < 1e-7 for n in before.names)
    torch.testing.assert_close(done.trained.w.flat, plain.visit(1).trained.w.flat, rtol=1e-5, atol=1e-6)


def test_a_closed_gate_leaves_the_shared_model_alone_and_trains_the_private_one_like_solo() -> None:
    """FLDA (b): b_k = −40."""
    local = replace(PLAIN, weight_decay=0.0)
    tiny, alone = Tiny(flda(), local=local).run(1, [0, 1]), Tiny(solo(), local=local).run(1, [0, 1])
    initial = tiny.net.initial.w.tensors
    with_own(tiny, 1, **{**initial, "gate.bias": torch.full((1,), -40.0), "gate.weight": torch.zeros(5)})
    done = tiny.visit(1)
    torch.testing.assert_close(done.trained.w.flat, done.start.w.flat, rtol=1e-6, atol=1e-6)
    alone.client_states = {}
    wanted, got = (
        alone.visit(1, broadcast=alone.server.broadcast()).trained.w,
        done.client_state.slots["personal"].own,
    )  # type: ignore[attr-defined]
    for n in wanted.names:
        torch.testing.assert_close(got[n], wanted[n], rtol=1e-5, atol=1e-6)
    logits = done.personal_logits(tiny.method.personal, tiny.data[1].x)  # type: ignore[arg-type]
    expert = done.trained.replace(w=Params({n: got[n] for n in wanted.names}))
    torch.testing.assert_close(logits, tiny.net.apply(expert, tiny.data[1].x)[0])


def test_the_gates_gradient_is_the_formula() -> None:
    """FLDA (c): ∂L/∂α = Σ_c (p_c − y_c)(G_c − π_c), times α(1 − α) h for u."""
    g = torch.Generator().manual_seed(0)
    shared, private = (torch.randn(1, 3, generator=g, dtype=torch.float64) for _ in range(2))
    z = torch.randn(1, 5, generator=g, dtype=torch.float64)
    u = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    b = torch.zeros(1, dtype=torch.float64)
    mixed = mixture(shared, private, z, Params({"gate.weight": u, "gate.bias": b}))
    (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(mixed, torch.tensor([2])), u)
    alpha = torch.sigmoid(z @ u.detach())
    p = mixed.detach().softmax(-1) - torch.tensor([[0.0, 0.0, 1.0]])
    wanted = (p * (shared - private)).sum() * alpha * (1 - alpha) * z[0]
    torch.testing.assert_close(slope, wanted)


def test_the_authors_preset_counts_the_mixtures_loss_twice() -> None:
    """Twice the gradient: without momentum and decay, one step at the rate η is one of the original's at
    2 η, the gates alike.
    """
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0, epochs=0.01)
    one_step = [replace(local, lr=lr) for lr in (0.05, 0.1)]
    once_counted = replace(flda("authors"), personal=MixedExperts(1, drawn=True))
    twice, once = (
        Tiny(m, local=at).visit(1) for m, at in zip((flda("authors"), once_counted), one_step, strict=True)
    )
    assert twice.steps == once.steps == 1
    torch.testing.assert_close(twice.trained.w.flat, once.trained.w.flat, rtol=1e-6, atol=1e-7)
    assert twice.loss == pytest.approx(2 * once.loss, rel=1e-6)


def test_the_gate_starts_half_open() -> None:
    """FLDA (d)."""
    tiny = Tiny(flda()).run(1, [0, 1])
    fresh = tiny.method.personal.client_init(tiny.context(0, "personal")).own  # type: ignore[union-attr]
    assert all(float(fresh[n].abs().max()) == 0.0 for n in GATE)


def test_the_shared_expert_does_not_depend_on_the_private_ones_of_clients_that_are_not_drawn() -> None:
    """FLDA (d): client 0's expert is turned over between the rounds, and client 0 stays at home."""
    one, other = Tiny(flda()).run(1, [0, 1]), Tiny(flda()).run(1, [0, 1])
    before = other.client_states[0]
    other.client_states[0] = tree_map(lambda t: -t, before)
    assert not same_bits(other.client_states[0], before)
    assert same_bits(one.run(1, [1, 2]).server, other.run(1, [1, 2]).server)
    # And with client 0 it does depend
    assert not same_bits(one.run(1, [0, 2]).server, other.run(1, [0, 2]).server)


@pytest.mark.parametrize("norm", [False, True])
def test_apfl_with_alpha_1_trains_solos_model_bit_for_bit(norm: bool) -> None:
    """APFL (3): v̄ = v, on the same batches with the same participation."""
    mine, alone = Tiny(apfl(1.0), net=network(norm)).run(4), Tiny(solo(), net=network(norm)).run(4)
    assert set(mine.client_states) == set(alone.client_states)
    for client in mine.client_states:
        assert same_bits(own(mine, client), alone.client_states[client].v)


def test_apfl_with_alpha_0_never_moves_v_and_scores_fedavgs_model() -> None:
    """APFL (2), without decay and momentum to move it."""
    local = replace(PLAIN, weight_decay=0.0)
    mine, plain = Tiny(apfl(0.0), local=local).run(3), Tiny(fedavg(), local=local).run(3)
    for client, done in mine.last.items():
        assert same_bits(own(mine, client), mine.net.initial.w)
        assert same_bits(done.personal_state(mine.method).w, plain.last[client].trained.w)


def test_the_private_gradient_is_alpha_times_that_at_the_mixture() -> None:
    """APFL (4): one step without momentum: v⁺ = v − η α ∇f(αv + (1 − α)w)."""
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)
    tiny = Tiny(apfl(0.3), local=local).run(2, [0, 1, 2, 3])
    before, start = own(tiny, 1), tiny.visit(1).start
    mixed = {n: 0.3 * before[n] + 0.7 * start.w[n] for n in start.w.names}
    after = tiny.visit(1).client_state.slots["personal"].own  # type: ignore[attr-defined]
    for n, g in slopes(lambda w: tiny_loss(w, tiny.data[1].x, tiny.data[1].y), mixed).items():
        torch.testing.assert_close(after[n], before[n] - 0.1 * 0.3 * g, rtol=1e-5, atol=1e-6)


def test_the_adaptive_alpha_takes_one_step_a_round_along_its_gradient_at_the_first_batch() -> None:
    """APFL step 4: α ← clip(α − η⟨v − w, ∇f(v̄)⟩, 0, 1), at v̄ formed before the step; later batches
    leave it.
    """
    local = replace(PLAIN, batch_size=64)
    one, many = Tiny(apfl(0.5, True), local=local), Tiny(apfl(0.5, True), local=replace(local, epochs=3))
    for tiny in (one, many):
        tiny.run(1, [0, 1, 2, 3])
        with_own(tiny, 1, alpha=torch.tensor([0.4]))
    many.server, many.client_states = one.server, one.client_states
    before, start = own(one, 1), one.visit(1).start
    mixed = {n: 0.4 * before[n] + 0.6 * start.w[n] for n in start.w.names}
    grads = slopes(lambda w: tiny_loss(w, one.data[1].x, one.data[1].y), mixed)
    slope = sum(float(((before[n] - start.w[n]) * g).sum()) for n, g in grads.items())
    assert abs(slope) > 1e-4
    for tiny in (one, many):
        after = tiny.visit(1).client_state.slots["personal"].own  # type: ignore[attr-defined]
        assert float(after["alpha"]) == pytest.approx(0.4 - 0.1 * slope, abs=1e-5)


def test_alpha_stays_where_v_is_w_and_inside_0_and_1() -> None:
    """APFL (5): first visit from the initial model; clip."""
    assert float(Tiny(apfl(0.5, True)).visit(1).client_state.slots["personal"].own["alpha"]) == 0.5  # type: ignore[attr-defined]
    rule = AdaptiveMixedModel(0.5)
    for slope, wanted in ((100.0, 0.0), (-100.0, 1.0), (1.0, 0.4)):
        turned = rule.update_gates(
            Params({"alpha": torch.tensor([0.5])}),
            Params({"alpha": torch.tensor([slope])}),
            0.1,
            torch.tensor(0),
        )
        assert float(turned["alpha"]) == pytest.approx(wanted)


def test_between_rounds_v_is_mixed_with_the_servers_new_weights() -> None:
    """APFL: scored is α v_i + (1 − α) w^{t+1} after aggregation, also of client 3, which took no part in
    round 2.
    """
    tiny = Tiny(apfl(0.3)).run(1, [0, 1, 2, 3]).run(1, [0, 1])
    for client in (0, 3):
        participant = Participant(client, tiny.client_states[client], tiny.data[client])
        found = (
            between_rounds(tiny.method, tiny.server.broadcast(), participant, tiny.session)
            .personal_state(tiny.method)
            .w
        )
        for n, v in own(tiny, client).tensors.items():
            torch.testing.assert_close(found[n], 0.3 * v + 0.7 * tiny.server.w[n], rtol=1e-6, atol=1e-7)
    local = tiny.last[0].personal_state(tiny.method).w
    assert not torch.allclose(
        local["head.weight"], 0.3 * own(tiny, 0)["head.weight"] + 0.7 * tiny.server.w["head.weight"]
    )


def test_parameter_mixing_is_logit_mixing_for_a_linear_model() -> None:
    """APFL (4): the head is linear, so with equal bodies mixed heads give mixed logits."""
    tiny = Tiny(apfl(0.3)).run(1, [0, 1])
    w = tiny.last[1].trained.w
    v = Params({n: t if n.startswith("body") else t + 1.0 for n, t in w.tensors.items()})
    mixed = tiny.method.personal.mixed(v, w)  # type: ignore[union-attr]
    x, b = tiny.data[1].x, tiny.net.initial
    logits = [tiny.net.apply(b.replace(w=p), x)[0] for p in (mixed, v, w)]
    torch.testing.assert_close(logits[0], 0.3 * logits[1] + 0.7 * logits[2], rtol=1e-5, atol=1e-5)
    assert forward(x, tiny.data[1].y).through is None
    assert len(clients()) == 4


# FedROD's preset "authors" by hand (docs/papers/baselines-personal.md, FedROD, deviations of MAP's
# released code).


def scaled(gamma: float, counts: list[int]) -> Tensor:
    """What its generic head makes of logits that are all 1."""
    head = fedrod(gamma, preset="authors").head
    assert head is not None
    return head.logits(torch.ones(2, len(counts)), bare_context(class_counts=torch.tensor(counts)))


def test_a_client_of_all_classes_has_a_logit_scale_of_4_over_c() -> None:
    """0.4 for C = 10, 0.04 for C = 100: the 4 is a constant. γ is its exponent."""
    torch.testing.assert_close(scaled(1.0, [7] * 10), torch.full((2, 10), 0.4))
    torch.testing.assert_close(scaled(1.0, [7] * 100), torch.full((2, 100), 0.04))
    torch.testing.assert_close(scaled(0.5, [7] * 10), torch.full((2, 10), 0.4**0.5))


def test_a_missing_class_has_logit_0_and_a_share_of_the_denominator() -> None:
    """Counts 4, 2, 0 of 6: scales 16/6, 8/6, 0; the balanced softmax would have −∞."""
    torch.testing.assert_close(scaled(1.0, [4, 2, 0]), torch.tensor([[16 / 6, 8 / 6, 0.0]] * 2))


def test_one_step_is_that_of_both_losses_jointly_and_the_score_is_half_the_sum_of_both_heads() -> None:
    """L = CE((4 n/Σn) z_g) + CE(½ (V h + z_g)), its gradient in θ, W_g and V without a stop; client 0
    lacks class 2.
    """
    tiny = Tiny(
        fedrod(preset="authors"), local=replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)
    ).run(1, [0, 1])
    kept = companion(tiny, 0)
    done, x, y = tiny.visit(0), tiny.data[0].x, tiny.data[0].y
    assert done.steps == 1
    counts = torch.bincount(y, minlength=3)

    def loss(w: Params, v: Params) -> Tensor:
        generic, h = activity(w, x)
        both = h @ v["head.weight"].T + v["head.bias"] + generic
        return F.cross_entropy(generic * 4 * counts / len(y), y) + F.cross_entropy(both / 2, y)

    after = of_kind(done.client_state.slots["personal"], Companion)
    joint_step(loss, done, (done.start.w, kept), after.own)
    logits, z = tiny.net.apply(done.trained, x)
    wanted = (logits + z @ after.own["head.weight"].T + after.own["head.bias"]) / 2
    torch.testing.assert_close(tiny.net.apply(done.personal_state(tiny.method), x)[0], wanted)

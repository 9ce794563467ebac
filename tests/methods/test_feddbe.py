"""FedDBE (Zhang et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Forward
from raffed.core.params import Params, State
from raffed.errors import UsageError
from raffed.methods.common import Companion
from raffed.methods.fedavg import fedavg
from raffed.methods.feddbe import (
    ConsensusMean,
    DomainBias,
    RunningDomainBias,
    TranslatedFeatures,
    feddbe,
    mean_gap,
)
from tests.tiny import EVERYBODY, PLAIN, WIDTH, Tiny, bare_context, leaves, network, of_kind, same_bits

W = torch.tensor([[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]])
BIAS = torch.tensor([0.1, 0.0, -0.1])
Z = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
Y = torch.tensor([0, 2])
V = torch.tensor([0.5, -0.5])
CONSENSUS = ConsensusMean(torch.tensor([0.2, 0.1]), torch.tensor(True))


def worked(v: Tensor = V, **own: Tensor) -> Forward:
    """The forward pass of the sheet's example, under the translation v."""
    w = Params({"head.weight": W, "head.bias": BIAS})
    return Forward(Z, Y, Z, Z @ W.T + BIAS, w, Params({"v": v, **own}))


def test_translated_features_have_the_loss_and_gradient_worked_out_by_hand() -> None:
    """Logits (0.1, 3.75, 1.4) and (2.1, −2.75, −1.6); the gradient in v is the mean of (p − e_y) W."""
    v = V.clone().requires_grad_()
    loss = TranslatedFeatures().loss(worked(v), bare_context(round=1))
    assert float(loss.detach()) == pytest.approx(3.7482879, abs=1e-6)
    (slope,) = torch.autograd.grad(loss, [v])
    torch.testing.assert_close(slope, torch.tensor([0.2206652, 0.4580253]))
    logits = torch.tensor([[0.1, 3.75, 1.4], [2.1, -2.75, -1.6]])
    error = logits.softmax(-1) - torch.eye(3)[Y]
    torch.testing.assert_close(slope, (error @ W).mean(0))


def test_a_client_s_model_has_its_translation_in_the_bias() -> None:
    state = State(Params({"head.weight": W, "head.bias": BIAS}), Params({}))
    model = DomainBias(1.0).model(bare_context(state=state, mine=Companion(Params({"v": V}))))
    torch.testing.assert_close(model.w["head.bias"], torch.tensor([1.1, -0.75, -0.6]))
    torch.testing.assert_close(Z @ W.T + model.w["head.bias"], (Z + V) @ W.T + BIAS)
    assert same_bits(model.w["head.weight"], W)


def test_the_pull_of_the_mean_feature_is_that_of_the_example() -> None:
    """z̄ = (0.5, 0.5), ḡ = (0.2, 0.1): ½ (0.09 + 0.16)/2 = 0.0625, and 50 of it beside the cross-entropy."""
    k = bare_context(round=1, server=CONSENSUS)
    assert float(mean_gap(Z.mean(0), CONSENSUS)) == pytest.approx(0.0625)
    whole = TranslatedFeatures().loss(worked(), k) + DomainBias(50.0).loss(worked(), k)
    assert float(whole) == pytest.approx(6.8732879, abs=1e-6)


def test_in_the_first_round_there_is_neither_a_translation_nor_a_pull() -> None:
    """It is FedAvg's round bit for bit, and v stays 0."""
    one, two = (Tiny(m, net=network(True), local=PLAIN) for m in (feddbe(), fedavg()))
    one.step(EVERYBODY)
    two.step(EVERYBODY)
    assert same_bits([one.server.w, one.server.b], [two.server.w, two.server.b])
    for kept in one.client_states.values():
        assert not any(bool(t.any()) for t in leaves(kept))


def test_a_translation_that_stays_0_is_fedavg() -> None:
    """a + W·0 has the logits' bits, so only what moves v makes a difference: frozen at 0 it makes none."""

    class FrozenAtZero(DomainBias):
        gates = ("v",)  # the default rule of gates leaves them as they are

    frozen = replace(feddbe(kappa=0.0), personal=FrozenAtZero(0.0))
    one, two = Tiny(frozen).run(3), Tiny(fedavg()).run(3)
    assert same_bits(one.server.w, two.server.w)


def test_the_common_mean_is_that_of_the_participants_features_and_stays() -> None:
    """Σ z / Σ n under the models that they have trained, in evaluation mode; it is sent up once."""
    tiny = Tiny(feddbe(), net=network(True))
    done = tiny.step([0, 1, 3])
    features = [tiny.net.apply(done[c].trained, tiny.data[c].x)[1] for c in (0, 1, 3)]
    first = of_kind(tiny.server.slots["personal"], ConsensusMean)
    torch.testing.assert_close(first.mean, torch.cat(features).mean(0), rtol=1e-5, atol=1e-6)
    assert all(sum(one.upload.slots["personal"].numbers().values()) == WIDTH + 1 for one in done.values())
    later = tiny.step(EVERYBODY)
    assert not any(one.upload.slots for one in later.values())
    assert same_bits(tiny.server.slots["personal"], first)


def test_translations_differ_between_clients_and_are_never_sent() -> None:
    tiny = Tiny(feddbe()).run(3, EVERYBODY)
    kept = [tiny.client_states[c].slots["personal"] for c in EVERYBODY]
    assert all(one.own.names == ("v",) for one in kept if isinstance(one, Companion))
    assert len({tuple(leaves(one)[0].tolist()) for one in kept}) == 4
    shared = tiny.net.initial.w.names
    for done in tiny.last.values():
        assert done.upload.w.names == shared
        assert not done.upload.slots


def running(batches: list[Tensor], mu: float) -> tuple[Tensor, list[float]]:
    """m after the batches, and the pull at each, by the rule of the gate."""
    rule, m, values = RunningDomainBias(1.0, True, mu), torch.zeros(3), []
    for z in batches:
        live = m.clone().requires_grad_()
        f = Forward(z, Y, z, z, Params({}), Params({"v": V, "m": live}))
        value = rule.loss(f, bare_context(server=CONSENSUS))
        (slope,) = torch.autograd.grad(value, [live])
        m = rule.update_gates(Params({"m": m}), Params({"m": 0.3 * slope}), 0.1, torch.tensor(0))["m"]
        values.append(float(value.detach()))
    return m[:-1], values


def test_the_running_mean_moves_by_its_share_whatever_gradients_are_clipped_to() -> None:
    """μ = 0.1 from 0: 0.1 z̄₁, then 0.09 z̄₁ + 0.1 z̄₂. The gate's gradient comes clipped to 0.3 of it."""
    one, two = Z.mean(0), torch.tensor([2.0, -1.0])
    m, values = running([Z, two.expand(2, 2)], 0.1)
    torch.testing.assert_close(m, 0.09 * one + 0.1 * two)
    for value, mean in zip(values, (0.1 * one, 0.09 * one + 0.1 * two), strict=True):
        assert value == pytest.approx(float(mean_gap(mean, CONSENSUS)))


def test_only_the_batch_s_share_of_the_running_mean_has_a_gradient() -> None:
    """∂/∂z_i = κ μ (m − ḡ)/(D B)."""
    z = Z.clone().requires_grad_()
    m = torch.tensor([0.4, -0.2, 0.0])
    f = Forward(z, Y, z, z, Params({}), Params({"v": V, "m": m.clone().requires_grad_()}))
    value = RunningDomainBias(2.0, True, 0.5).loss(f, bare_context(server=CONSENSUS))
    (slope,) = torch.autograd.grad(value, [z])
    gap = 0.5 * m[:-1] + 0.5 * Z.mean(0) - CONSENSUS.mean
    torch.testing.assert_close(slope, (2.0 * 0.5 * gap / 4).expand(2, 2))


@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_stack_with_a_running_mean_trains_as_the_clients_alone(limit: float | None) -> None:
    local = replace(PLAIN, clip_norm=limit)
    one, two = (Tiny(feddbe(kappa=5.0, mu=0.5), local=local, cohort=c).run(3, EVERYBODY) for c in (0, 1))
    for a, b in zip(one.everything(), two.everything(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_network_without_a_bias_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(UsageError, match="bias of the output layer, which this network does not have"):
        Tiny(feddbe(), net=network(bias=False))
    Tiny(feddbe(translate=False), net=network(bias=False)).run(2, EVERYBODY)


def test_the_default_pull_is_no_smaller_than_a_hundredth_of_the_cross_entropy_s_gradient() -> None:
    tiny = Tiny(feddbe()).run(2, EVERYBODY)
    k = tiny.context(0, "personal")
    live = list(tiny.net.leaves("body").values())
    tiny.net.load(State(tiny.server.w, tiny.server.b))
    f = tiny.net.forward(tiny.data[0].x, tiny.data[0].y)
    pull = DomainBias(50.0).loss(f, k)
    assert pull is not None
    own = []
    for value in (pull, k.ce(f)):
        grads = torch.autograd.grad(value, live, retain_graph=True)
        own.append(float(torch.cat([g.flatten() for g in grads]).norm()))
    assert own[0] > 0.01 * own[1]

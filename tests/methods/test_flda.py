"""FLDA's private expert and gate beyond `test_fedrod_flda_apfl.py`: where they start, and one visit by
hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.params import Params
from raffed.core.round import ClientRound
from raffed.methods.common import Companion
from raffed.methods.flda import GATE, drawn_gate, flda
from tests.tiny import PLAIN, Tiny, activity, network, of_kind, same_bits
from tests.tiny import companion as own

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

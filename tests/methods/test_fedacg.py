"""FedACG (Kim et al. 2024): the server sends where its momentum is about to lead."""

from __future__ import annotations

import pytest
import torch

from raffed.core.round import evaluated_broadcast
from raffed.core.server import Mean
from raffed.methods.fedacg import Base, Lookahead, fedacg
from tests.quadratics import quadratics, x_of
from tests.tiny import Tiny, network, of_kind, point, server_context

UNIFORM = Mean(by="clients")


def test_three_quadratics_have_the_worked_numbers() -> None:
    """λ = 0.85 and β = 1e-3, from 0 in rounds of two steps of rate 0.1."""
    tiny, sent, scored, m = quadratics(fedacg(), lr=0.1, steps=2), [], [], []
    for _ in range(3):
        sent.append(x_of(tiny.server.w))
        tiny.step([0, 1, 2])
        base = of_kind(tiny.server.slots["server"], Base)
        scored.append(x_of(evaluated_broadcast(tiny.method, tiny.server).w))
        m.append(x_of(base.m))
    assert sent == pytest.approx([0.0, -0.2712963, -0.5151387], abs=2e-7)
    assert scored == pytest.approx([-0.1466467, -0.3458315, -0.5248598], abs=2e-7)
    assert m == pytest.approx([-0.1466467, -0.1991849, -0.1790282], abs=2e-7)


def test_the_scored_model_moves_by_the_new_momentum_and_is_the_mean_of_the_uploads() -> None:
    tiny = Tiny(fedacg(0.7), net=network(norm=True))
    before = tiny.server.w
    for _ in range(4):
        done = tiny.step([0, 3])
        base = of_kind(tiny.server.slots["server"], Base)
        scored = evaluated_broadcast(tiny.method, tiny.server).w
        mean = (done[0].upload.w + done[3].upload.w) / 2
        torch.testing.assert_close(scored.flat, mean.flat, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close((scored - before).flat, base.m.flat, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(tiny.server.w.flat, (scored + base.m * 0.7).flat, rtol=1e-6, atol=1e-7)
        before = scored


def test_the_rule_moves_both_ways() -> None:
    """w^t = 1, m = ±2 and λ = 0.5: sent is 1 ± 1; the mean 1 gives m⁺ = ±1 − (±1) = 0 and sends 1."""
    for sign in (1.0, -1.0):
        for mean, m, sent in ((1.0, 0.0, 1.0), (3.0, 2.0, 4.0)):
            before = Base(point(1.0), point(2 * sign))
            own, made = Lookahead(0.5).step(before, point(1 + sign), point(mean), server_context())
            assert (float(own.w["w"]), float(own.m["w"]), float(made["w"])) == (mean, m, sent)

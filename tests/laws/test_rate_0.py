"""At rate 0 nobody moves, so neither does the server, and nothing is divided by the rate."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from raffed.core.params import Params, State
from raffed.methods import build_method
from raffed.methods.feddc import ClientDrift, DriftControl, ServerCorrection
from raffed.methods.scaffold import ClientControl, ControlVariate, ServerControl
from tests.tiny import PLAIN, Tiny, bare_context, network, same_bits
from tests.tiny import body_point as point

PAPER = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc", "fedmr")  # FedMR's Table 1
CONTROLLED = ("scaffold", "scars", "scamap")


@pytest.mark.parametrize("name", [*PAPER, *CONTROLLED])
def test_at_rate_0_two_rounds_leave_the_weights_as_they_were(name: str) -> None:
    tiny = Tiny(build_method(name), net=network(norm=True), local=replace(PLAIN, lr=0.0))
    before = tiny.server.w.flat.clone()
    tiny.run(2)
    assert tiny.server.round == 2
    assert same_bits(tiny.server.w.flat, before)


def test_at_rate_0_the_controls_keep_their_equations_without_the_displacement() -> None:
    """SCAFFOLD: c_i⁺ = c_i − c. FedDC: h_k stays, c_k⁺ = c_k − c/ω_k, and −c is sent; ω = 3 · 4/12 = 1
    and 3 · 4/6 = 2.
    """
    still, own, server = State(point(3.0, 3.0), Params({})), point(1.0, -2.0), point(0.5, 4.0)
    k = bare_context(start=still, state=still, steps=6, lr_sum=0.0, momentum=0.9)
    control, sent = ControlVariate().finish(k.replace(mine=ClientControl(own), server=ServerControl(server)))
    assert control.c["body.w"].tolist() == [0.5, -6.0]
    assert sent.dc["body.w"].tolist() == [-0.5, -4.0]
    k = k.replace(mine=ClientDrift(point(7.0, 8.0), own), server=ServerCorrection(server))
    for beta, (samples, weight) in itertools.product(("a_norm", "steps"), ((12, 1.0), (6, 2.0))):
        drift, delta = DriftControl(0.1, beta).finish(k.replace(spec=replace(k.spec, samples=samples)))
        assert drift.h["body.w"].tolist() == [7.0, 8.0]
        assert drift.c["body.w"].tolist() == [1.0 - 0.5 / weight, -2.0 - 4.0 / weight]
        assert delta.dc["body.w"].tolist() == [-0.5, -4.0]

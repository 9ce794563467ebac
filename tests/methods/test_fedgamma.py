"""FedGAMMA (Dai et al. 2023): sharpness-aware steps with SCAFFOLD's control variates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.training.session import overrides
from raffed.methods.fedgamma import CorrectedSharpnessSteps, fedgamma
from raffed.methods.scaffold import scaffold
from tests.laws.test_equalities import ALSO_STACKED
from tests.quadratics import GRADIENTS, OPTIMUM, B, H, quadratics, x_of
from tests.tiny import PLAIN, Tiny, network, same_bits


def with_rho(rho: float) -> Method:
    """FedGAMMA with its own steps also where ρ is 0."""
    return replace(fedgamma(0.1), solver=CorrectedSharpnessSteps(rho))


def server_control(tiny: Tiny) -> Params:
    found: Params = tiny.server.slots["solver"].c  # type: ignore[union-attr]
    return found


def control(tiny: Tiny, client: int) -> Params:
    state = tiny.client_states.get(client)
    return state.slots["solver"].c if state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ALSO_STACKED)
def test_its_own_steps_with_rho_0_are_scaffold_s_and_so_are_the_controls(name: str) -> None:
    """Where rates change within a round, the controls divide by the sum of those that were used."""
    mine, plain = ALSO_STACKED[name](with_rho(0.0)).run(4), ALSO_STACKED[name](scaffold()).run(4)
    theirs = plain.server.slots["correction"].c  # type: ignore[union-attr]
    for a, b in ((mine.server.w, plain.server.w), (server_control(mine), theirs)):
        torch.testing.assert_close(a.flat, b.flat, rtol=1e-5, atol=1e-5)
    assert float(theirs.sq_norm()) > 1e-3


def test_with_rho_0_quadratic_clients_end_at_the_optimum() -> None:
    """QT with K = 5 and η = 0.1: x* = −2/3, c_i = ∇f_i(x*) and c = 0. FedAvg ends elsewhere."""
    tiny = quadratics(with_rho(0.0), lr=0.1, steps=5).run(150, [0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=1e-5)
    assert [x_of(control(tiny, i)) for i in range(3)] == pytest.approx(GRADIENTS, abs=1e-4)
    assert x_of(server_control(tiny)) == pytest.approx(0.0, abs=1e-4)


def test_one_round_of_quadratic_clients_with_rho_a_tenth() -> None:
    """From 0: every second gradient is h (x ± 0.1 − b), and c_i is the mean of the five of them."""
    tiny = quadratics(fedgamma(0.1), lr=0.1, steps=5)
    tiny.step([0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(-0.1230313, abs=2e-7)
    assert x_of(server_control(tiny)) == pytest.approx(0.2460626, abs=5e-7)
    controls = [x_of(control(tiny, i)) for i in range(3)]
    assert controls == pytest.approx([-0.9009220, 3.4941060, -1.8549963], abs=5e-7)
    for h, b, c in zip(H, B, controls, strict=True):
        x, seen = 0.0, []
        for _ in range(5):
            slope = h * (x - b)
            seen.append(h * (x + (0.1 if slope > 0 else -0.1) - b))
            x -= 0.1 * seen[-1]
        assert c == pytest.approx(sum(seen) / 5, abs=1e-6)


def test_in_a_later_round_the_second_gradient_is_corrected_and_the_first_is_not() -> None:
    """Written out for two rounds: w̃ = x ± ρ by the sign of the plain slope, then g₂ − c_i + c."""
    tiny = quadratics(fedgamma(0.1), lr=0.1, steps=2).run(2, [0, 1, 2])
    x, c, own = 0.0, 0.0, [0.0, 0.0, 0.0]
    for _ in range(2):
        ends = []
        for h, b, c_i in zip(H, B, own, strict=True):
            w = x
            for _ in range(2):
                ahead = w + (0.1 if h * (w - b) > 0 else -0.1)
                w -= 0.1 * (h * (ahead - b) - c_i + c)
            ends.append(w)
        own, before = [c_i - c + (x - w) / 0.2 for c_i, w in zip(own, ends, strict=True)], own
        c += sum(a - b for a, b in zip(own, before, strict=True)) / 3
        x = sum(ends) / 3
    assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)
    assert x_of(server_control(tiny)) == pytest.approx(c, abs=1e-5)


def test_the_server_s_control_is_the_mean_over_all_clients_after_every_round() -> None:
    """Two of four take part in a round; a client that has never been drawn counts as 0."""
    tiny = Tiny(fedgamma(), net=network(norm=True))
    for _ in range(4):
        tiny.step()
        mean = sum((control(tiny, k) for k in range(1, 4)), control(tiny, 0)) / 4
        torch.testing.assert_close(server_control(tiny).clone().flat, mean.clone().flat, rtol=1e-5, atol=1e-6)


def test_momentum_and_decay_of_the_run_do_not_apply_and_means_are_uniform() -> None:
    strong = replace(PLAIN, momentum=0.99, weight_decay=1.0)
    tiny = Tiny(fedgamma(server_lr=0.5), local=strong)
    start, done = tiny.server.w, tiny.step([0, 2])
    assert done[0].upload.n is None
    mean = (done[0].upload.w + done[2].upload.w) / 2
    torch.testing.assert_close(tiny.server.w.flat, (start + (mean - start) * 0.5).flat, rtol=1e-5, atol=1e-6)
    plain = Tiny(fedgamma(server_lr=0.5), local=replace(PLAIN, momentum=0.0, weight_decay=0.0))
    plain.step([0, 2])
    assert same_bits(tiny.server, plain.server)
    assert [one.name for one in overrides(fedgamma(), strong)] == ["momentum", "weight_decay"]

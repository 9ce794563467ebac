"""FedDC (docs/papers/baselines.md, FedDC)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.params import Params, State
from raffed.errors import NumericsError
from raffed.methods.feddc import Beta, ClientDrift, DriftControl, ServerCorrection, feddc
from raffed.methods.feddyn import Drift, feddyn
from raffed.methods.fedprox import fedprox
from tests.quadratics import GRADIENTS, OPTIMUM, WEIGHTED, B, H, quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, point, same_bits

SLOT = "term-DriftControl"


def kept(tiny: Tiny, client: int) -> ClientDrift:
    return of_kind(tiny.client_states[client].slots[SLOT], ClientDrift)


def correction(tiny: Tiny) -> ServerCorrection:
    return of_kind(tiny.server.slots[SLOT], ServerCorrection)


@pytest.mark.parametrize("norm", [False, True])
def test_round_0_has_fedproxs_local_models_and_feddyns_server_step_bit_for_bit(norm: bool) -> None:
    """(1): h = c = 0."""
    mine, prox = Tiny(feddc(0.3, scaled=False), net=network(norm)), Tiny(fedprox(0.3), net=network(norm))
    dyn = Tiny(feddyn(0.3, scaled=False), net=network(norm))
    for client in range(4):
        assert same_bits(mine.visit(client).trained, prox.visit(client).trained)
    mine.step([0, 2])
    dyn.step([0, 2])
    assert same_bits(mine.server.w, dyn.server.w)


def test_on_the_quadratics_everything_ends_where_the_sheet_says() -> None:
    """(2): α = 0.1, K = 5, η = 0.05: θ = −2/3, c = 0, c_k = (−1.62602, 3.90244, −2.27642), h_k = (.40650,
    −.97561, .56911), and ∇f_k = c_k − α h_k − c.
    """
    tiny = quadratics(feddc(0.1, scaled=False), lr=0.05, steps=5).run(80, [0, 1, 2])
    c_k, h_k = [x_of(kept(tiny, k).c) for k in range(3)], [x_of(kept(tiny, k).h) for k in range(3)]
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=1e-4)
    assert x_of(correction(tiny).c) == pytest.approx(0.0, abs=1e-4)
    assert c_k == pytest.approx([-1.62602, 3.90244, -2.27642], abs=1e-3)
    assert h_k == pytest.approx([0.40650, -0.97561, 0.56911], abs=1e-3)
    assert [c - 0.1 * h for c, h in zip(c_k, h_k, strict=True)] == pytest.approx(GRADIENTS, abs=1e-3)


def test_with_sizes_1_2_5_and_both_scalings_it_finds_the_weighted_optimum() -> None:
    """(3): −0.1052632; without either, −2/3."""
    sizes = (1, 2, 5)
    both = quadratics(feddc(1.0), lr=0.1, steps=5, sizes=sizes).run(50, [0, 1, 2])
    neither = quadratics(feddc(1.0, scaled=False), lr=0.1, steps=5, sizes=sizes).run(50, [0, 1, 2])
    assert x_of(both.server.w) == pytest.approx(WEIGHTED, abs=2e-4)
    assert x_of(neither.server.w) == pytest.approx(OPTIMUM, abs=2e-4)


def test_with_momentum_only_the_corrected_beta_converges() -> None:
    """(4), K = 5, η = 0.02, ρ = 0.9: 1/(η‖a‖₁) → −2/3, 1/(Kη) diverges within 60 rounds."""
    good = quadratics(feddc(0.1, scaled=False), lr=0.02, steps=5, momentum=0.9).run(50, [0, 1, 2])
    assert x_of(good.server.w) == pytest.approx(OPTIMUM, abs=1e-3)
    bad = quadratics(feddc(0.1, beta="steps", scaled=False), lr=0.02, steps=5, momentum=0.9)
    with pytest.raises(NumericsError, match="outside"):
        bad.run(60, [0, 1, 2])


def test_without_momentum_the_two_betas_are_one() -> None:
    one, two = (
        quadratics(feddc(0.1, beta), lr=0.05, steps=5).run(3, [0, 1, 2]) for beta in ("a_norm", "steps")
    )
    torch.testing.assert_close(one.server.w.flat, two.server.w.flat, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("beta", "momentum", "gradient"),
    [
        ("steps", 0.0, 2.0),
        ("a_norm", 0.0, 2.0),
        ("mean_steps", 0.0, 1.0),
        ("steps", 0.5, 2.0),
        ("mean_steps", 0.5, 1.0),
        ("a_norm", 0.5, 24 / 17),
    ],
)
def test_a_displacement_becomes_a_gradient_by_own_steps_by_the_norm_or_by_the_official_codes_mean_steps(
    beta: Beta, momentum: float, gradient: float, sign: float
) -> None:
    """δ = −0.6 in 3 steps at η = 0.1 where a client of mean size makes 6: 0.6/(3 · 0.1) = 2, 0.6/(6 · 0.1) =
    1; at ρ = ½ ‖a‖₁ = 1 + 1.5 + 1.75 = 4.25 and 0.6/0.425 = 24/17. c_k⁺ = c_k − c/ω_k − β δ with c_k = 0.5, c
    = 0.25, ω_k = 1.
    """
    k = bare_context(
        start=State(point(1.0), Params({})),
        state=State(point(1.0 - sign * 0.6), Params({})),
        mine=ClientDrift(point(0.0), point(0.5)),
        server=ServerCorrection(point(0.25)),
        steps=3,
        usual_steps=6,
        lr_sum=0.3,
        momentum=momentum,
    )
    own, told = DriftControl(0.1, beta, scaled=False).finish(k)
    assert float(own.c["w"]) == pytest.approx(0.5 - 0.25 + sign * gradient, rel=1e-6)
    assert float(told.dc["w"]) == pytest.approx(-0.25 + sign * gradient, rel=1e-6)


def test_the_mean_steps_are_those_of_a_client_with_the_mean_number_of_samples() -> None:
    """8, 10, 6 and 11 samples are 35, 8.75 a client: in batches of 4 these are 3 steps an epoch, 6 in two."""
    tiny = Tiny(feddc(beta="mean_steps"), local=replace(PLAIN, epochs=2)).run(1, [0, 1, 2, 3])
    views = [tiny.last[c].views[SLOT] for c in range(4)]
    assert [v.usual_steps for v in views] == [6, 6, 6, 6]
    assert [v.steps for v in views] == [4, 6, 4, 6]


def test_the_servers_correction_is_the_weighted_mean_of_the_clients_after_every_round() -> None:
    """(6): c = (1/N) Σ ω_k c_k, ω_k = n_k·N/Σ n; two of four a round."""
    tiny = Tiny(feddc(0.1), net=network(norm=True))
    for _ in range(5):
        tiny.step()
        c = tiny.server.w.zeros()
        for k in tiny.client_states:
            c = c + kept(tiny, k).c * (tiny.data[k].n / 35)
        torch.testing.assert_close(correction(tiny).c.flat, c.flat, rtol=1e-4, atol=1e-5)
        drift = of_kind(tiny.server.slots["server"], Drift)
        h = sum((kept(tiny, k).h for k in tiny.client_states), tiny.server.w.zeros()) / 4
        torch.testing.assert_close(drift.drift.flat, h.flat, rtol=1e-4, atol=1e-6)
    assert float(c.sq_norm()) > 1e-3


def test_partial_participation_finds_the_optimum_as_well() -> None:
    """(3): two of three clients a round, unscaled."""
    tiny = quadratics(feddc(1.0, scaled=False), lr=0.1, steps=5)
    for t in range(36):
        tiny.step([[0, 1], [0, 2], [1, 2]][t % 3])
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=1e-3)
    assert len(H) == len(B) == 3

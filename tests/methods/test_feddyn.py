"""Gradients that are remembered: FedDyn and FedDC."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.context import Forward, Spec
from raffed.core.params import Params, State
from raffed.errors import NumericsError
from raffed.methods.feddc import Beta, ClientDrift, DriftControl, ServerCorrection, feddc
from raffed.methods.feddyn import ClientDual, Drift, DriftCorrected, feddyn
from raffed.methods.fedprox import fedprox
from tests.quadratics import GRADIENTS, OPTIMUM, WEIGHTED, B, H, quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, point, same_bits, server_context

# FedDyn (docs/papers/baselines.md, FedDyn).


def dual(tiny: Tiny, client: int) -> Params:
    client_state = tiny.client_states.get(client)
    return client_state.slots["term-DynamicPull"].dual if client_state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("norm", [False, True])
def test_round_0_has_fedproxs_local_models_and_feddyns_server_step_bit_for_bit(norm: bool) -> None:
    """(1) of both: λ = 0, and h = c = 0."""
    dyn, drift, prox = (
        Tiny(method, net=network(norm))
        for method in (feddyn(0.3, scaled=False), feddc(0.3, scaled=False), fedprox(0.3))
    )
    for client in range(4):
        wanted = prox.visit(client).trained
        assert same_bits([tiny.visit(client).trained for tiny in (dyn, drift)], [wanted] * 2)
    for tiny in (dyn, drift):
        tiny.step([0, 2])
    assert same_bits(drift.server.w, dyn.server.w)


@pytest.mark.parametrize(("chosen", "share"), [((0, 1, 2, 3), 1.0), ((0, 2), 0.5), ((3,), 0.25)])
def test_the_first_server_step_overshoots_the_active_mean_by_the_share_of_participants(
    chosen: tuple[int, ...], share: float
) -> None:
    """(1): θ¹ = x̄ + (|S|/N)(x̄ − θ⁰); 2x̄ − θ⁰ with everybody. Sizes differ, means do not weigh them."""
    tiny = Tiny(feddyn(0.1))
    start = tiny.server.w
    done = tiny.step(chosen)
    mean = sum((done[c].upload.w for c in chosen[1:]), done[chosen[0]].upload.w) / len(chosen)
    torch.testing.assert_close(tiny.server.w.flat, (mean + (mean - start) * share).flat, rtol=1e-5, atol=1e-6)
    assert done[chosen[0]].upload.n is None


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_on_the_quadratics_server_and_active_mean_find_the_optimum_and_duals_its_gradients(
    momentum: float,
) -> None:
    """(4): 5 SGD steps at 0.02, α = 1; θ = active mean = −2/3, −αλ = (−5/3, 4, −7/3)."""
    tiny = quadratics(feddyn(1.0, scaled=False), lr=0.02, steps=5, momentum=momentum)
    tiny.run(45 if momentum else 90, [0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=2e-4)
    assert x_of(
        tiny.method.server.evaluation_weights(tiny.server.slots["server"], tiny.server.w)
    ) == pytest.approx(OPTIMUM, abs=2e-4)
    assert [-x_of(dual(tiny, k)) for k in range(3)] == pytest.approx(GRADIENTS, abs=5e-3)


@pytest.mark.parametrize(("scaled", "limit"), [(True, WEIGHTED), (False, OPTIMUM)])
def test_scaling_alpha_by_the_clients_share_makes_uniform_means_find_the_weighted_optimum(
    scaled: bool, limit: float
) -> None:
    """n = (1, 2, 5): α_k = α/ω_k → −0.1052632, constant α → −2/3."""
    tiny = quadratics(feddyn(1.0, scaled=scaled), lr=0.2, steps=4, sizes=(1, 2, 5)).run(30, [0, 1, 2])
    assert x_of(tiny.server.w) == pytest.approx(limit, abs=2e-4)


@pytest.mark.parametrize(
    ("alpha", "drawn", "point", "within"),
    [(1.0, 3, OPTIMUM, 1e-6), (0.1, 3, OPTIMUM, 1e-4), (0.1, 2, OPTIMUM, 1e-4), (0.01, 3, -0.505, 1e-4)],
)
def test_with_exact_local_solves_a_small_alpha_is_slow(
    alpha: float, drawn: int, point: float, within: float
) -> None:
    """(3): x_k = (h_k b_k − αλ_k + αθ)/(h_k + α), 300 rounds, all three clients or two in turn; 0.01 has
    not converged.
    """
    rule, theta = DriftCorrected(), Params({"x": torch.zeros(1, dtype=torch.float64)})
    own, duals = rule.init(theta), [ClientDual(theta.zeros()) for _ in H]
    for t in range(300):
        chosen, found = [(t + i) % 3 for i in range(drawn)], theta.zeros()
        for k in chosen:
            x = (theta * alpha - duals[k].dual * alpha + Params({"x": torch.tensor([H[k] * B[k]])})) * (
                1 / (H[k] + alpha)
            )
            duals[k] = ClientDual(duals[k].dual + (x - theta))
            found = found + x * (1 / drawn)
        own, theta = rule.step(own, theta, found, server_context(count=drawn, spec=Spec(1, 1, 3, drawn)))
    assert float(theta["x"]) == pytest.approx(point, abs=within)
    if point == OPTIMUM:
        assert float(rule.evaluation_weights(own, theta)["x"]) == pytest.approx(point, abs=within)
        assert [-alpha * float(one.dual["x"]) for one in duals] == pytest.approx(GRADIENTS, abs=1e-3)


def test_a_client_that_reached_its_stationary_point_has_the_gradient_of_its_loss_in_its_new_dual() -> None:
    """(2): ∇f_k(θ_k) = −α λ_k(new)."""
    tiny = quadratics(feddyn(0.5, scaled=False), lr=0.2, steps=80).run(2, [0, 1, 2])
    for client, (h, b) in enumerate(((1.0, 1.0), (3.0, -2.0), (0.5, 4.0))):
        end = x_of(tiny.last[client].trained.w)
        assert h * (end - b) == pytest.approx(-0.5 * x_of(dual(tiny, client)), abs=1e-4)


def test_the_servers_drift_is_the_mean_of_all_duals_after_every_round() -> None:
    """(5): h = −α · mean_k λ_k over all N, two of four a round, never-seen clients count as 0."""
    tiny = Tiny(feddyn(0.1), net=network(norm=True))
    for _ in range(5):
        tiny.step()
        own = of_kind(tiny.server.slots["server"], Drift)
        mean = sum((dual(tiny, k) for k in range(1, 4)), dual(tiny, 0)) / 4
        torch.testing.assert_close(own.drift.flat, mean.clone().flat, rtol=1e-4, atol=1e-6)
    assert float(own.drift.sq_norm()) > 1e-4


def test_the_authors_quadratic_is_centred_at_half_the_start_and_averaged_over_tensors() -> None:
    """(α/T)(⟨λ − w^t, w⟩ + ‖w‖²): slope (α/T)(λ − w^t + 2w), 0 at w^t/2 in round 0."""
    tiny = Tiny(feddyn(0.3, preset="authors"))
    term, start = tiny.method.terms[0], tiny.net.initial.w
    seed = torch.Generator().manual_seed(0)
    for history in (
        start.zeros(),
        Params.from_flat(start.layout, torch.randn(start.layout.size, generator=seed)).clone(),
    ):
        k = bare_context(start=State(start, Params({})), mine=ClientDual(history))
        for w in (start * 0.5, start * -2.0):
            live = Params({name: t.detach().clone().requires_grad_() for name, t in w.tensors.items()})
            f = Forward(
                torch.zeros(1, 1),
                torch.zeros(1, dtype=torch.int64),
                torch.zeros(1, 1),
                torch.zeros(1, 1),
                live,
            )
            got = torch.autograd.grad(term.loss(f, k), list(live.tensors.values()))
            wanted = (history - start + w * 2.0) * (0.3 / len(start))
            for slope, name in zip(got, start.names, strict=True):
                torch.testing.assert_close(slope, wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chosen", [(0, 1, 2, 3), (0, 2), (3,)])
def test_the_authors_server_goes_the_participants_share_of_the_way_and_remembers_nothing(
    chosen: tuple[int, ...],
) -> None:
    tiny = Tiny(feddyn(0.1, preset="authors"))
    start = tiny.server.w
    done = tiny.step(chosen)
    mean = sum((done[c].upload.w for c in chosen[1:]), done[chosen[0]].upload.w) / len(chosen)
    torch.testing.assert_close(
        tiny.server.w.flat, (start + (mean - start) * (len(chosen) / 4)).flat, rtol=1e-5, atol=1e-6
    )
    assert tiny.server.slots == {}


def test_what_is_scored_is_the_active_mean_or_on_request_the_broadcast_point() -> None:
    w, mean = Params({"w": torch.tensor([1.0])}).clone(), Params({"w": torch.tensor([2.0])}).clone()
    for score, value in (("active", 2.0), ("broadcast", 3.0)):
        rule = DriftCorrected(score)
        own, out = rule.step(rule.init(w), w, mean, server_context())
        assert float(out["w"]) == 3.0  # 2x̄ − θ⁰
        assert float(rule.evaluation_weights(own, out)["w"]) == value


# FedDC (docs/papers/baselines.md, FedDC).

SLOT = "term-DriftControl"


def kept(tiny: Tiny, client: int) -> ClientDrift:
    return of_kind(tiny.client_states[client].slots[SLOT], ClientDrift)


def correction(tiny: Tiny) -> ServerCorrection:
    return of_kind(tiny.server.slots[SLOT], ServerCorrection)


def test_on_the_quadratics_everything_ends_where_the_sheet_says() -> None:
    """(2): α = 0.1, K = 5, η = 0.05: θ = −2/3, c = 0, c_k = (−1.62602, 3.90244, −2.27642), h_k = (.40650,
    −.97561, .56911), and ∇f_k = c_k − α h_k − c.
    """
    tiny = quadratics(feddc(0.1, scaled=False), lr=0.05, steps=5).run(60, [0, 1, 2])
    c_k, h_k = [x_of(kept(tiny, k).c) for k in range(3)], [x_of(kept(tiny, k).h) for k in range(3)]
    assert x_of(tiny.server.w) == pytest.approx(OPTIMUM, abs=1e-4)
    assert x_of(correction(tiny).c) == pytest.approx(0.0, abs=1e-4)
    assert c_k == pytest.approx([-1.62602, 3.90244, -2.27642], abs=1e-3)
    assert h_k == pytest.approx([0.40650, -0.97561, 0.56911], abs=1e-3)
    assert [c - 0.1 * h for c, h in zip(c_k, h_k, strict=True)] == pytest.approx(GRADIENTS, abs=1e-3)


def test_with_sizes_1_2_5_and_both_scalings_it_finds_the_weighted_optimum() -> None:
    """(3): −0.1052632; without either, −2/3."""
    sizes = (1, 2, 5)
    both = quadratics(feddc(1.0), lr=0.1, steps=5, sizes=sizes).run(25, [0, 1, 2])
    neither = quadratics(feddc(1.0, scaled=False), lr=0.1, steps=5, sizes=sizes).run(30, [0, 1, 2])
    assert x_of(both.server.w) == pytest.approx(WEIGHTED, abs=2e-4)
    assert x_of(neither.server.w) == pytest.approx(OPTIMUM, abs=2e-4)


def test_with_momentum_only_the_corrected_beta_converges() -> None:
    """(4), K = 5, η = 0.02, ρ = 0.9: 1/(η‖a‖₁) → −2/3, 1/(Kη) diverges within 60 rounds."""
    good = quadratics(feddc(0.1, scaled=False), lr=0.02, steps=5, momentum=0.9).run(40, [0, 1, 2])
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

"""FedDyn (docs/papers/baselines.md, FedDyn)."""

from __future__ import annotations

import pytest
import torch

from raffed.core.context import Forward, Spec
from raffed.core.params import Params, State
from raffed.methods.feddyn import ClientDual, Drift, DriftCorrected, feddyn
from raffed.methods.fedprox import fedprox
from tests.quadratics import GRADIENTS, OPTIMUM, WEIGHTED, B, H, quadratics, x_of
from tests.tiny import Tiny, bare_context, network, of_kind, same_bits, server_context


def dual(tiny: Tiny, client: int) -> Params:
    client_state = tiny.client_states.get(client)
    return client_state.slots["term-DynamicPull"].dual if client_state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("norm", [False, True])
def test_the_local_models_of_round_0_are_fedproxs_bit_for_bit(norm: bool) -> None:
    """(1): λ = 0."""
    mine, prox = Tiny(feddyn(0.3, scaled=False), net=network(norm)), Tiny(fedprox(0.3), net=network(norm))
    for client in range(4):
        assert same_bits(mine.visit(client).trained, prox.visit(client).trained)


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
    tiny = quadratics(feddyn(1.0, scaled=False), lr=0.02, steps=5, momentum=momentum).run(90, [0, 1, 2])
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
    tiny = quadratics(feddyn(1.0, scaled=scaled), lr=0.2, steps=4, sizes=(1, 2, 5)).run(60, [0, 1, 2])
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
    tiny = quadratics(feddyn(0.5, scaled=False), lr=0.2, steps=200).run(2, [0, 1, 2])
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


def test_the_history_is_private_and_never_broadcast() -> None:
    tiny = Tiny(feddyn()).run(2, [0, 1, 2, 3])
    assert tiny.server.broadcast().slots == {}
    assert all(done.upload.slots == {} for done in tiny.last.values())

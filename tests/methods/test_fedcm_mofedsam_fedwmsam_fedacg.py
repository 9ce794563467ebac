"""Momentum that clients and the server share: FedCM, MoFedSAM, FedWMSAM, FedACG."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.config.federation import Federation
from raffed.core.context import Received
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.round import evaluated_broadcast
from raffed.core.training.session import overrides
from raffed.errors import UsageError
from raffed.methods.fedacg import Base, Lookahead, fedacg
from raffed.methods.fedcm import MixedGradient, Momentum, fedcm, mean_gradient
from raffed.methods.fedwmsam import (
    KeptWeighted,
    MomentumGuidedSteps,
    RatesAndSimilarity,
    Weighted,
    fedwmsam,
    similarity,
)
from raffed.methods.mofedsam import MixedSharpnessSteps, mofedsam
from raffed.runtime.run_method import with_mean
from tests.laws.test_equalities import ALSO_STACKED
from tests.quadratics import B, H, quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, point, same_bits, server_context

# FedCM (Xu et al. 2021) and MoFedSAM (Qu et al. 2022): steps mixed with the last round's mean update.

EVERYBODY = [0, 1, 2]


def m_of(tiny: Tiny, slot: str = "correction") -> Params:
    found: Params = tiny.server.slots[slot].m  # type: ignore[union-attr]
    return found


def test_three_quadratics_of_two_steps_a_round_have_the_worked_numbers() -> None:
    tiny = quadratics(fedcm(0.1), lr=0.1, steps=2)
    found = []
    for _ in range(3):
        tiny.step(EVERYBODY)
        found.append((x_of(tiny.server.w), x_of(m_of(tiny))))
    assert [w for w, _ in found] == pytest.approx([-0.0194667, -0.0557446, -0.1059632], abs=2e-7)
    assert [m for _, m in found] == pytest.approx([0.0973333, 0.1813896, 0.2510931], abs=5e-7)


def test_one_step_of_one_client_a_round_is_heavy_ball_averaging() -> None:
    """m^{t+1} = α g + (1 − α) m^t with g = 2 (x − 1) at x^t, and x^{t+1} = x^t − 0.1 m^{t+1}."""
    tiny, x, m = quadratics(fedcm(0.3), lr=0.1, steps=1, sizes=(1,), h=(2.0,), b=(1.0,)), 0.0, 0.0
    for _ in range(5):
        tiny.step([0])
        m = 0.3 * 2.0 * (x - 1.0) + 0.7 * m
        x -= 0.1 * m
        assert x_of(m_of(tiny)) == pytest.approx(m, abs=1e-6)
        assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)


@pytest.mark.parametrize("method", [fedcm(), mofedsam()], ids=lambda one: one.name)
def test_the_model_moves_by_the_mean_of_the_summed_rates_along_m(method: Method) -> None:
    """w^{t+1} = w^t − K η m⁺; of clients with 2 and 3 batches of rate 0.1, K η is 0.25."""
    tiny = Tiny(method, net=network(norm=True))
    for _ in range(2):
        before = tiny.server.w
        tiny.step([0, 1])
        slot = "correction" if method.correction else "solver"
        torch.testing.assert_close(
            tiny.server.w.flat, (before - m_of(tiny, slot) * 0.25).flat, rtol=1e-5, atol=1e-6
        )
        assert float(m_of(tiny, slot).sq_norm()) > 1e-6


def test_weight_decay_is_outside_the_mixture_and_a_clip_bounds_the_gradient_before_it() -> None:
    """x ← x − η (α min(|g|, 1) sign g + (1 − α) m + wd·x), worked out for two rounds of two steps."""
    tiny = quadratics(fedcm(0.4), lr=0.1, steps=2)
    tiny.local = replace(tiny.local, weight_decay=0.5, clip_norm=1.0)
    tiny.arrange()
    x, m = 0.0, 0.0
    for _ in range(2):
        ends = []
        for h, b in zip(H, B, strict=True):
            w = x
            for _ in range(2):
                g = h * (w - b)
                w -= 0.1 * (0.4 * max(-1.0, min(1.0, g)) + 0.6 * m + 0.5 * w)
            ends.append(w)
        x, m = sum(ends) / 3, (x - sum(ends) / 3) / 0.2
        tiny.step(EVERYBODY)
        assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)
        assert x_of(m_of(tiny)) == pytest.approx(m, abs=1e-5)


def test_where_no_step_has_a_rate_m_is_0() -> None:
    w = Params({"w": torch.tensor([3.0])}).clone()
    assert mean_gradient(w, w, 0.0)["w"].tolist() == [0.0]
    assert mean_gradient(w, w * 2.0, 0.5)["w"].tolist() == [-6.0]


@pytest.mark.parametrize("method", [fedcm(), mofedsam()], ids=lambda one: one.name)
def test_momentum_of_the_run_does_not_apply_and_weights_of_the_mean_cannot_be_chosen(method: Method) -> None:
    strong = replace(PLAIN, momentum=0.9)
    one, two = (Tiny(method, local=replace(PLAIN, momentum=rho)).run(3) for rho in (0.9, 0.0))
    assert same_bits(one.server, two.server)
    assert [each.name for each in overrides(method, strong)] == ["momentum"]
    with pytest.raises(UsageError, match="requires the weights 'clients'"):
        with_mean(method, Federation(weighting="samples"))


# MoFedSAM


@pytest.mark.parametrize("name", ALSO_STACKED)
def test_its_own_steps_with_rho_0_are_fedcm_s(name: str) -> None:
    own = replace(mofedsam(), solver=MixedSharpnessSteps(0.0, 0.1))
    mine, plain = ALSO_STACKED[name](own).run(4), ALSO_STACKED[name](fedcm()).run(4)
    for a, b in ((mine.server.w, plain.server.w), (m_of(mine, "solver"), m_of(plain))):
        torch.testing.assert_close(a.flat, b.flat, rtol=1e-5, atol=1e-5)


def test_quadratic_clients_go_along_the_slope_ahead_and_m() -> None:
    """Three rounds written out: w̃ = x ± ρ by the slope's sign, x ← x − η (α h (w̃ − b) + (1 − α) m)."""
    tiny, x, m = quadratics(mofedsam(0.1, 0.3), lr=0.1, steps=2), 0.0, 0.0
    for _ in range(3):
        ends = []
        for h, b in zip(H, B, strict=True):
            w = x
            for _ in range(2):
                ahead = w + (0.1 if h * (w - b) > 0 else -0.1)
                w -= 0.1 * (0.3 * h * (ahead - b) + 0.7 * m)
            ends.append(w)
        x, m = sum(ends) / 3, (x - sum(ends) / 3) / 0.2
        tiny.step(EVERYBODY)
        assert x_of(tiny.server.w) == pytest.approx(x, abs=1e-6)
        assert x_of(m_of(tiny, "solver")) == pytest.approx(m, abs=1e-5)


def test_a_mixture_is_of_the_gradient_and_m_and_of_both_signs() -> None:
    k = bare_context(server=Momentum(Params({"w": torch.tensor([4.0, -4.0])})))
    mixed = MixedGradient(0.25).gradient(Params({"w": torch.tensor([-8.0, 8.0])}), k)
    assert mixed["w"].tolist() == [0.25 * -8.0 + 0.75 * 4.0, 0.25 * 8.0 - 0.75 * 4.0]


# FedWMSAM (Li et al. 2025): a personal momentum, whose direction says where the gradient is taken.


def kept(tiny: Tiny) -> Weighted:
    return of_kind(tiny.server.slots["server"], KeptWeighted).now


def control(tiny: Tiny, client: int) -> Params:
    state = tiny.client_states.get(client)
    return state.slots["solver"].c if state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ALSO_STACKED)
def test_without_its_three_ideas_it_is_fedcm(name: str) -> None:
    """ρ = 0, no controls, α as it is. So the poster's row without all of them is its FedCM."""
    mine = ALSO_STACKED[name](fedwmsam(0.0, adapt=0.0, controls=False)).run(4)
    plain = ALSO_STACKED[name](fedcm()).run(4)
    m = plain.server.slots["correction"].m  # type: ignore[union-attr]
    for a, b in ((mine.server.w, plain.server.w), (kept(mine).m, m)):
        torch.testing.assert_close(a.flat, b.flat, rtol=1e-5, atol=1e-5)
    assert kept(mine).alpha == 0.1
    assert not mine.client_states


@pytest.mark.parametrize(
    ("rho", "sign", "alpha", "ends"),
    [
        (0.0, "ascent", 0.1056667, [-0.0194667, -0.0557824]),
        (0.1, "ascent", 0.1056667, [-0.0199667, -0.0582152]),
        (0.1, "descent", 0.108, [-0.0189667, -0.0533497]),
    ],
)
def test_three_quadratics_have_the_worked_numbers_of_fedwmsam(
    rho: float, sign: str, alpha: float, ends: list[float]
) -> None:
    tiny = quadratics(fedwmsam(rho, sign=sign), lr=0.1, steps=2)
    found = []
    for _ in range(2):
        tiny.step(EVERYBODY)
        found.append(x_of(tiny.server.w))
    assert found == pytest.approx(ends, abs=2e-7)
    now = kept(tiny)
    assert now.c is not None
    if not rho:
        assert x_of(now.m) == pytest.approx(0.1815789, abs=1e-6)
        controls = [x_of(control(tiny, c)) for c in EVERYBODY]
        assert controls == pytest.approx([-0.1915234, 1.1165741, -0.3803141], abs=2e-6)
    assert x_of(now.c) == pytest.approx(x_of(now.m), abs=1e-6)
    assert now.alpha == pytest.approx(alpha, abs=1e-7)


def steps(rule: MomentumGuidedSteps, m: list[float], count: int) -> list[Tensor]:
    """Where `count` steps take their gradients, which are all (1, 0), from w^t = (2, 3) at rate 0.1."""
    seen: list[Tensor] = []

    def gradient(state: State, which: int) -> tuple[Params, Params]:
        seen.append(state.w["w"])
        return Params({"w": torch.tensor([1.0, 0.0], dtype=torch.float64)}), state.b

    at = lambda values: Params({"w": torch.tensor(values, dtype=torch.float64)})  # noqa: E731
    start = State(at([2.0, 3.0]), Params({}))
    k = bare_context(start=start, server=Weighted(at(m), None, 0.5), lr=0.1)
    carried = rule.begin(k)
    for _ in range(count):
        carried = rule.step(carried, gradient, k)
    return [*seen, rule.end(carried).w["w"]]


@pytest.mark.parametrize(
    ("target", "sign", "ahead"),
    [
        # δ = w^t + m − w₁ with w₁ = w^t − 0.1 (½ (1, 0) + ½ m), so 1.05 m + (0.05, 0)
        ("momentum", 1.0, [1.05 * 3.0 + 0.05, 1.05 * -4.0]),
        # the target moves by −0.1 m, and w by −0.05 m − (0.05, 0): δ = (0.05, 0) − 0.05 m
        ("displacement", 1.0, [0.05 - 0.05 * 3.0, 0.05 * 4.0]),
        ("momentum", -1.0, [1.05 * 3.0 + 0.05, 1.05 * -4.0]),
    ],
)
def test_the_first_gradient_is_taken_at_w_and_the_second_at_rho_towards_the_target(
    target: str, sign: float, ahead: list[float]
) -> None:
    """By one norm over all weights. m = (3, −4), α = ½."""
    name = "ascent" if sign > 0 else "descent"
    rule = MomentumGuidedSteps(0.5, 0.5, controls=False, sign=name, target=target)
    first, second, _ = steps(rule, [3.0, -4.0], 2)
    assert first.tolist() == [2.0, 3.0]
    w = torch.tensor([2.0 - 0.1 * 2.0, 3.0 + 0.1 * 2.0], dtype=torch.float64)
    delta = torch.tensor(ahead, dtype=torch.float64)
    torch.testing.assert_close(second, w + sign * 0.5 * delta / delta.norm(), rtol=1e-9, atol=1e-9)


def test_where_the_target_stays_at_the_weights_nothing_is_perturbed_and_nothing_is_nan() -> None:
    tiny = Tiny(fedwmsam(5.0), local=replace(PLAIN, batch_size=64))  # one step a round: always δ = 0
    plain = Tiny(fedwmsam(0.0), local=replace(PLAIN, batch_size=64))
    assert same_bits(tiny.run(3, [0, 1]).everything(), plain.run(3, [0, 1]).everything())
    assert bool(torch.isfinite(tiny.server.w.flat).all())


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_the_server_s_control_is_the_mean_over_all_clients_of_as_many_steps(rho: float) -> None:
    """c⁺ = (1 − |S|/N) c + (|S|/N) m⁺ needs no upload of controls. Two of four clients take part."""
    tiny = quadratics(
        fedwmsam(rho), lr=0.1, steps=3, sizes=(1,) * 4, h=(1.0, 3.0, 0.5, 2.0), b=(1.0, -2.0, 4.0, -1.0)
    )
    for participants in ([0, 1], [2, 3], [1, 3], [0, 2]):
        tiny.step(participants)
        c = kept(tiny).c
        assert c is not None
        assert x_of(c) == pytest.approx(sum(x_of(control(tiny, i)) for i in range(4)) / 4, abs=1e-6)
    assert abs(x_of(control(tiny, 0))) > 1e-2


def test_an_update_along_the_last_mean_update_has_similarity_0_and_one_against_it_2() -> None:
    assert similarity(point(1.0, 2.0), point(-2.0, -4.0)) == pytest.approx(0.0, abs=1e-12)
    assert similarity(point(1.0, 2.0), point(3.0, 6.0)) == pytest.approx(2.0, abs=1e-12)
    assert similarity(point(1.0, 0.0), point(0.0, 5.0)) == 1.0
    assert similarity(point(1.0, 2.0), point(0.0, 0.0)) == similarity(point(0.0, 0.0), point(1.0, 1.0)) == 0.0


@pytest.mark.parametrize(("told", "alpha"), [(0.0, 0.1), (0.6, 0.15), (1.8, 0.18)])
def test_alpha_moves_towards_the_similarity_within_a_tenth_and_nine_tenths(told: float, alpha: float) -> None:
    """λ = 0.1 from α = 0.1: 0.09 + 0.1 · 0.1, 0.6 and 0.9."""
    tiny = Tiny(fedwmsam(adapt=0.1))
    message = RatesAndSimilarity(0.6, 2 * told)
    k = server_context(received={"solver": Received(2, sum=message)}, count=2)
    rule: Any = tiny.method.server
    own, _ = rule.step(rule.init(tiny.server.w), tiny.server.w, tiny.server.w, k)
    assert own.now.alpha == pytest.approx(alpha, abs=1e-12)


# FedACG (Kim et al. 2024): the server sends where its momentum is about to lead.


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

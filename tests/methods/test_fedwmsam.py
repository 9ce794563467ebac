"""FedWMSAM (Li et al. 2025): a personal momentum, whose direction says where the gradient is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core.context import Received
from raffed.core.params import Params, State
from raffed.methods.fedcm import fedcm
from raffed.methods.fedwmsam import (
    KeptWeighted,
    MomentumGuidedSteps,
    RatesAndSimilarity,
    Weighted,
    fedwmsam,
    similarity,
)
from tests.laws.test_equalities import ALSO_STACKED
from tests.quadratics import quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, of_kind, point, same_bits, server_context

EVERYBODY = [0, 1, 2]


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
def test_three_quadratics_of_two_steps_a_round_have_the_worked_numbers(
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

"""FedCM (Xu et al. 2021) and MoFedSAM (Qu et al. 2022): steps mixed with the last round's mean update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.config.federation import Federation
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.training.session import overrides
from raffed.errors import UsageError
from raffed.methods.fedcm import MixedGradient, Momentum, fedcm, mean_gradient
from raffed.methods.fedsam import fedsam
from raffed.methods.mofedsam import MixedSharpnessSteps, mofedsam
from raffed.runtime.run_method import with_mean
from tests.laws.test_equalities import ALSO_STACKED
from tests.quadratics import B, H, quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, same_bits

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


def test_with_rho_0_it_is_fedcm_and_with_alpha_1_fedsam_bit_for_bit() -> None:
    assert same_bits(Tiny(mofedsam(0.0)).run(3).everything(), Tiny(fedcm()).run(3).everything())
    assert same_bits(Tiny(mofedsam(0.2, 1.0)).run(3).everything(), Tiny(fedsam(0.2)).run(3).everything())
    assert mofedsam(0.0).name == mofedsam(0.1, 1.0).name == "MoFedSAM"
    assert not same_bits(Tiny(mofedsam()).run(2).server.w, Tiny(fedcm()).run(2).server.w)


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

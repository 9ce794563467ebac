"""FedAvgM, FedAdagrad, FedAdam, FedYogi (docs/papers/baselines.md, FedOpt)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raffed.core.method import Method
from raffed.core.server import Mean, ServerRule
from raffed.methods.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from tests.quadratics import quadratics, x_of
from tests.tiny import Tiny, network, point, same_bits, server_context

K = server_context()


def moved(rule: ServerRule, *deltas: tuple[float, ...], own: Any = None) -> tuple[Any, list[float]]:
    """The memory and the last step taken, from w = 1, after these pseudo-gradients."""
    w = point(*[1.0] * len(deltas[0]))
    own, step = own or rule.init(w), w
    for delta in deltas:
        own, after = rule.step(own, w, w + point(*delta), K)
        step, w = after - w, after
    return own, step["w"].tolist()


@pytest.mark.parametrize("norm", [False, True])
def test_without_momentum_at_rate_1_it_is_fedavg_to_float_accuracy(norm: bool) -> None:
    """(a); weighted by samples or uniformly, as the mean is."""
    for weighting, mean in (("samples", Mean()), ("clients", Mean(by="clients"))):
        mine = Tiny(fedavgm(0.0, 1.0, weighting), net=network(norm)).run(3)
        plain = Tiny(Method("FedAvg", mean=mean), net=network(norm)).run(3)
        torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=1e-5, atol=1e-6)


def test_fedavgms_weights_are_n_k_over_n_unless_uniform_means_are_asked_for() -> None:
    """Hsu et al. 2019, Δ = Σ (n_k/n) Δ_k; of Reddi et al.'s three methods means are uniform.

    Sizes 1 and 3 that moved by −1 and +1: ¼·(−1) + ¾·1 = ½, against 0; the other way round −½.
    """
    for method, delta in (
        (fedavgm(), 0.5),
        (fedavgm(weighting="clients"), 0.0),
        (fedadam(), 0.0),
        (fedyogi(), 0.0),
    ):
        for sign in (1.0, -1.0):
            p = method.mean.weights([1, 3])
            assert p[0] * -sign + p[1] * sign == pytest.approx(sign * delta)


def test_fedadams_first_step_from_zero_state() -> None:
    """(b): η·0.1Δ/(√0.01|Δ| + τ): 0.098039 for Δ = 0.5, −0.066667 for Δ = −0.02. No bias correction."""
    _, step = moved(fedadam(v0=0.0).server, (0.5, -0.02))
    assert step == pytest.approx([0.098039, -0.066667], abs=2e-6)


def test_fedadagrads_first_step_is_the_normalised_update() -> None:
    """(c): η Δ/(|Δ| + τ)."""
    _, step = moved(fedadagrad(v0=0.0).server, (0.5, -0.02))
    assert step == pytest.approx([0.1 * 0.5 / 0.501, -0.1 * 0.02 / 0.021], abs=2e-6)


def test_yogis_first_step_is_adams_from_zero_and_not_from_tau_squared() -> None:
    """(d)."""
    assert moved(fedyogi(v0=0.0).server, (0.5, -0.02))[1] == moved(fedadam(v0=0.0).server, (0.5, -0.02))[1]
    small = (0.0005, -0.0002)  # Δ² < v₀ = 1e-6: Yogi's v falls by (1 − β₂)Δ², Adam's towards Δ²
    assert moved(fedyogi().server, small)[1] != moved(fedadam().server, small)[1]


def test_the_second_moments_follow_their_formulas() -> None:
    """v₀ = 1e-6, Δ = 0.5 then 0.1, β₂ = 0.99."""
    v = {
        name: moved(make().server, (0.5,), (0.1,))[0].v["w"].item()
        for name, make in (("adagrad", fedadagrad), ("adam", fedadam), ("yogi", fedyogi))
    }
    assert v["adagrad"] == pytest.approx(1e-6 + 0.25 + 0.01, rel=1e-5)
    assert v["adam"] == pytest.approx(0.99 * (0.99e-6 + 0.0025) + 0.0001, rel=1e-5)
    assert v["yogi"] == pytest.approx(1e-6 + 0.0025 + 0.0001, rel=1e-4)  # v below Δ² both times: it grows


def test_after_a_round_without_change_momentum_still_moves_and_only_adams_v_decays() -> None:
    """(e)."""
    for make, b1 in ((fedadam, 0.9), (fedyogi, 0.9), (fedadagrad, 0.0)):
        own, _ = moved(make().server, (0.5,))
        after, step = moved(make().server, (0.0,), own=own)
        assert (step[0] != 0.0) == (b1 > 0)
        ratio = float(after.v["w"]) / float(own.v["w"])
        assert ratio == pytest.approx(0.99 if make is fedadam else 1.0, rel=1e-5)
    own, _ = moved(fedavgm().server, (0.5,))
    assert moved(fedavgm().server, (0.0,), own=own)[1] == pytest.approx([0.45])


@pytest.mark.parametrize(
    "method", [fedavgm(0.5, 0.5), fedadagrad(0.5), fedadam(0.05), fedyogi(0.05)], ids=lambda m: m.name
)
def test_the_server_goes_towards_the_clients_target(method: Method) -> None:
    """(f): three clients with the same optimum 2; x starts at 0."""
    tiny = quadratics(method, lr=0.5, steps=5, h=(1.0, 1.0, 1.0), b=(2.0, 2.0, 2.0))
    seen = [x_of(tiny.step([0, 1, 2]) and tiny.server.w) for _ in range(4)]
    assert 0 < seen[0] < seen[1] < seen[2]
    assert abs(x_of(tiny.run(60, [0, 1, 2]).server.w) - 2) < 0.3


def test_moments_are_private_and_statistics_are_plain_means() -> None:
    tiny = Tiny(fedadam(), net=network(norm=True))
    done = tiny.step([0, 2])
    assert tiny.server.broadcast().slots == {}
    mean = (done[0].upload.b + done[2].upload.b) / 2
    torch.testing.assert_close(tiny.server.b.flat, mean.flat, rtol=1e-5, atol=1e-6)
    assert same_bits(tiny.server.slots["server"], tiny.server.slots["server"])

"""What the server makes of the uploads: FedOpt's rules, FedExP, FedLWS, FedAWA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core.context import Received, Spec
from raffed.core.messages import Upload
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.round import evaluated_broadcast
from raffed.core.server import Mean, ServerRule
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.fedawa import AdaptiveWeights, Learned, fedawa, gram, slope
from raffed.methods.fedexp import EarlierModel, Extrapolation, SquaredNorms, extrapolation, fedexp
from raffed.methods.fedlws import LayerwiseShrinking, fedlws, layers_of
from raffed.methods.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from tests.quadratics import quadratics, x_of
from tests.tiny import (
    CLASSES,
    EVERYBODY,
    SIZES,
    WIDTH,
    Tiny,
    client_data,
    network,
    of_kind,
    point,
    same_bits,
    server_context,
)

# FedAvgM, FedAdagrad, FedAdam, FedYogi (docs/papers/baselines.md, FedOpt).

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


@pytest.mark.parametrize(
    ("method", "step"),
    [
        (fedadam(v0=0.0), [0.098039, -0.066667]),  # (b): η·0.1Δ/(√0.01|Δ| + τ), no bias correction
        (fedadagrad(v0=0.0), [0.1 * 0.5 / 0.501, -0.1 * 0.02 / 0.021]),  # (c): η Δ/(|Δ| + τ)
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_first_step_from_zero_state(method: Method, step: list[float]) -> None:
    """Of Δ = 0.5 and −0.02."""
    assert moved(method.server, (0.5, -0.02))[1] == pytest.approx(step, abs=2e-6)


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
    tiny = quadratics(method, lr=0.5, steps=2, h=(1.0, 1.0, 1.0), b=(2.0, 2.0, 2.0))
    seen = [x_of(tiny.step([0, 1, 2]) and tiny.server.w) for _ in range(4)]
    assert 0 < seen[0] < seen[1] < seen[2]
    assert abs(x_of(tiny.run(26, [0, 1, 2]).server.w) - 2) < 0.3


def test_moments_are_private_and_statistics_are_plain_means() -> None:
    tiny = Tiny(fedadam(), net=network(norm=True))
    done = tiny.step([0, 2])
    assert tiny.server.broadcast().slots == {}
    mean = (done[0].upload.b + done[2].upload.b) / 2
    torch.testing.assert_close(tiny.server.b.flat, mean.flat, rtol=1e-5, atol=1e-6)
    assert same_bits(tiny.server.slots["server"], tiny.server.slots["server"])


# FedExP (Jhunjhunwala et al. 2023).


def rate(deltas: Sequence[tuple[float, ...]], p: list[float], epsilon: float) -> float:
    """η_g of updates with weights p."""
    moved, weights = torch.tensor(deltas, dtype=torch.float64), torch.tensor(p, dtype=torch.float64)
    mean = (weights[:, None] * moved).sum(0)
    return extrapolation(float((weights * moved.square().sum(1)).sum()), float(mean.square().sum()), epsilon)


CANCEL, THREE = [(1.0, 0.2), (-0.8, 0.2)], [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("deltas", "p", "epsilon", "wanted"),
    [
        (CANCEL, [0.5, 0.5], 1e-3, 8.4313725),  # Δ̄ = (0.1, 0.2), so 0.86/(2 · (0.05 + ε))
        (CANCEL, [0.5, 0.5], 2e-3, 8.2692308),
        (THREE, [0.5, 0.25, 0.25], 0.0, 1.2),
        (THREE, [0.5, 0.25, 0.25], 1e-3, 1.1961722),
        (THREE, [0.5, 0.25, 0.25], 3e-3, 1.1885895),
        ([(1.0, 2.0)] * 3, [0.2, 0.3, 0.5], 0.0, 1.0),  # a half, and it is never below 1
        ([(0.0, 0.0)] * 2, [0.5, 0.5], 0.0, 1.0),  # nothing moves
    ],
)
def test_the_server_s_rate_is_large_where_updates_cancel_and_1_where_they_agree(
    deltas: Sequence[tuple[float, ...]], p: list[float], epsilon: float, wanted: float
) -> None:
    assert rate(deltas, p, epsilon) == pytest.approx(wanted, abs=1e-7)
    assert extrapolation(1.0, 1.0, 1e9) == 1.0


def test_orthogonal_updates_of_equal_norm_go_half_as_many_times_as_far_as_there_are_clients() -> None:
    for clients in (2, 3, 8):
        moved = [tuple(row) for row in torch.eye(clients).tolist()]
        assert rate(moved, [1 / clients] * clients, 0.0) == pytest.approx(max(1.0, clients / 2))


def step_of(rule: Extrapolation, mean: list[float], weighted: float, count: int, samples: int) -> Params:
    """w^{t+1} from w^t = 0, the mean and the message's sum."""
    w = Params({"body.w": torch.zeros(len(mean))})
    told = {"message": Received(count, sum=SquaredNorms(weighted))}
    k = server_context(received=told, count=count, samples=samples)
    return rule.step(None, w, Params({"body.w": torch.tensor(mean)}), k)[1]


def test_epsilon_counts_once_or_once_for_each_client() -> None:
    """Two clients of 5 samples, and three of 2, 1 and 1, as above."""
    for per_client, pair, three in ((False, 8.4313725, 1.1961722), (True, 8.2692308, 1.1885895)):
        rule = Extrapolation(1e-3, per_client, average=False)
        torch.testing.assert_close(
            step_of(rule, [0.1, 0.2], 5 * 1.04 + 5 * 0.68, 2, 10)["body.w"],
            pair * torch.tensor([0.1, 0.2]),
        )
        torch.testing.assert_close(
            step_of(rule, [0.5, 0.25], 2.0 + 1.0, 3, 4)["body.w"], three * torch.tensor([0.5, 0.25])
        )


def test_identical_uploads_are_the_next_model_bit_for_bit() -> None:
    """Σ p ‖Δ‖² / (2 ‖Δ‖²) is a half: four copies of a client whose samples are all the same."""
    one = client_data(8, (1,), 0)
    same = replace(one, x=one.x[:1].repeat(8, 1))
    tiny = Tiny(fedexp(epsilon=0.0, score="last"), data=[same] * 4)
    done = tiny.step(EVERYBODY)
    assert all(same_bits(each.upload.w, done[0].upload.w) for each in done.values())
    assert same_bits(tiny.server.w, done[0].upload.w)


def test_three_quadratics_extrapolate_far_beyond_their_mean() -> None:
    """From 0 in 5 steps of rate 0.1: deltas 0.40951, −1.66386 and 0.9048763, Δ̄ −0.1164912, so 42.95 Δ̄."""
    tiny = quadratics(fedexp(weighting="clients"), lr=0.1, steps=5)
    done = tiny.step([0, 1, 2])
    moved = [x_of(done[c].upload.w) for c in range(3)]
    assert moved == pytest.approx([0.40951, -1.66386, 0.9048763], abs=1e-6)
    assert x_of(tiny.server.w) / (sum(moved) / 3) == pytest.approx(42.9521289, rel=1e-4)
    assert x_of(tiny.server.w) == pytest.approx(-5.0035472, rel=1e-4)


def test_the_mean_of_the_last_two_models_is_scored_and_after_the_first_round_the_first() -> None:
    tiny = Tiny(fedexp())
    scored = lambda: evaluated_broadcast(tiny.method, tiny.server).w  # noqa: E731
    before = tiny.server.w
    assert same_bits(scored(), before)
    for number in range(3):
        tiny.step()
        first = tiny.server.w if number == 0 else before
        torch.testing.assert_close(scored().flat, (first.flat + tiny.server.w.flat) / 2, rtol=0, atol=1e-7)
        before = tiny.server.w
    last = Tiny(fedexp(score="last")).run(3)
    assert same_bits(last.server.w, tiny.server.w)
    assert same_bits(evaluated_broadcast(last.method, last.server).w, last.server.w)


def test_the_previous_model_is_kept_only_where_it_is_scored() -> None:
    w = Params({"body.w": torch.ones(2)})
    assert isinstance(fedexp().server.init(w), EarlierModel)
    assert fedexp(score="last").server.init(w) is None


# FedLWS (Shi et al. 2025): each layer of the mean is shrunk by how much clients disagree in it.

NAMES = ("body.conv.weight", "body.norm.weight", "body.norm.bias", "head.weight")
Vector = list[float]


def after(rule: LayerwiseShrinking, w: Params, uploads: list[Params], p: Vector) -> Params:
    """w^{t+1} of uploads with weights p."""
    mean = sum((one * share for one, share in zip(uploads[1:], p[1:], strict=True)), uploads[0] * p[0])
    each = tuple(Upload(1, one, Params({}), {}) for one in uploads)
    k = server_context(received={"server": Received(len(each), each=each)})
    return rule.step(None, w, mean, k)[1]


@pytest.mark.parametrize(
    ("beta", "spread", "gamma", "made"),
    [
        (0.03, "norm", 0.9899019, [3.2171812, 5.4444605]),
        (0.3, "norm", 0.9426602, [3.0636457, 5.1846312]),  # τ at its upper bound
        (0.03, "rms", 0.9899019, [3.2171812, 5.4444605]),  # of two updates both are as far from their mean
    ],
)
def test_one_layer_of_two_clients_has_the_worked_numbers(
    beta: float, spread: str, gamma: float, made: Vector
) -> None:
    """w^t = (3, 4), uploads (4, 4) and (3, 6) with weights ¼ and ¾: ŵ = (3.25, 5.5), spread 1.1180340."""
    rule = LayerwiseShrinking(beta, 0.01, 0.2, spread=spread)
    found = after(rule, point(3.0, 4.0), [point(4.0, 4.0), point(3.0, 6.0)], [0.25, 0.75])
    assert found["w"].tolist() == pytest.approx(made, abs=1e-6)
    assert found["w"].tolist() == pytest.approx([gamma * 3.25, gamma * 5.5], abs=1e-6)


def test_the_two_spreads_differ_where_clients_are_unequally_far_away() -> None:
    """Updates 0, 0 and 3 lie 1, 1 and 2 from their mean: mean 4/3, root of the mean square √2. ‖w‖ = 1."""
    for spread, tau in (("norm", 0.04), ("rms", 0.03 * 2**0.5)):
        rule = LayerwiseShrinking(0.03, 0.0, 1.0, spread=spread)
        found = after(rule, point(1.0), [point(1.0), point(1.0), point(4.0)], [1 / 3] * 3)
        assert float(found["w"]) == pytest.approx(2.0 / (1.0 + tau), rel=1e-6)


def test_a_factor_does_not_change_with_the_scale_while_tau_is_at_a_bound() -> None:
    for beta, low, high in ((0.0, 0.01, 0.2), (1e3, 0.01, 0.2)):
        rule = LayerwiseShrinking(beta, low, high)
        small, large = (
            after(
                rule,
                point(3.0 * s, 4.0 * s),
                [point(4.0 * s, 4.0 * s), point(3.0 * s, 6.0 * s)],
                [0.5, 0.5],
            )["w"]
            for s in (1.0, 64.0)
        )
        torch.testing.assert_close(small * 64.0, large, rtol=1e-6, atol=0)
    free = LayerwiseShrinking(0.03, 0.0, 1.0)
    one, other = (
        after(free, point(3.0 * s), [point(4.0 * s), point(6.0 * s)], [0.5, 0.5])["w"] / s
        for s in (1.0, 64.0)
    )
    assert float(other) < 0.9 * float(one)


@pytest.mark.parametrize("rule", ["module", "code"])
def test_every_layer_of_the_mean_is_scaled_by_a_number_from_0_to_1(rule: str) -> None:
    tiny = Tiny(fedlws(beta=1.0, layers=rule), net=network(norm=True))
    plain = Tiny(fedavg(), net=network(norm=True))
    tiny.step([0, 1, 2])
    plain.step([0, 1, 2])
    assert same_bits(tiny.server.b, plain.server.b)
    factors = {}
    for names in layers_of(tiny.server.w.names, rule):
        shares = torch.cat([(tiny.server.w[n] / plain.server.w[n]).flatten() for n in names])
        torch.testing.assert_close(shares, shares[:1].expand_as(shares), rtol=1e-5, atol=0)
        assert 0.0 <= float(shares[0]) < 1.0
        factors[names[0]] = float(shares[0])
    assert all(a != b for a, b in pairwise(factors.values()))


def test_layers_are_the_parameters_of_a_module_or_end_with_a_bias() -> None:
    conv, *norm, head = NAMES
    assert layers_of(NAMES, "module") == [[conv], norm, [head]]
    assert layers_of(NAMES, "code") == [[conv, *norm], [head]]
    assert layers_of((conv, head), "code") == [[conv, head]]


def test_a_layer_of_zeros_takes_the_mean_whether_it_has_moved_or_not() -> None:
    """γ = 0/(0 + τ‖ŵ‖) would keep it at 0 for ever, and 0/0 is no number."""
    rule = LayerwiseShrinking(0.03, 0.01, 0.2)
    moved = after(rule, point(0.0, 0.0), [point(1.0, 0.0), point(0.0, 2.0)], [0.5, 0.5])
    assert moved["w"].tolist() == [0.5, 1.0]
    still = after(rule, point(0.0, 0.0), [point(0.0, 0.0)] * 2, [0.5, 0.5])
    assert still["w"].tolist() == [0.0, 0.0]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(UsageError, match=r"fedlws: low = 0\.5 is above high = 0\.2; give low at most high"):
        fedlws(low=0.5)


# FedAWA (Shi et al. 2025): the server learns the weights of the mean from the updates.

W, ROWS, T = [3.0, 4.0], [[4.0, 4.0], [3.0, 6.0]], [0.25, 0.75]


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def step(
    rule: AdaptiveWeights, rows: Any, samples: list[int], clients: list[int], own: Learned | None = None
) -> tuple[Tensor, Tensor]:
    """How far T of each of four clients has moved [4], and w^{t+1}, of uploads to w^t = (3, 4)."""
    uploads = tuple(Upload(n, point(*row), Params({}), {}) for n, row in zip(samples, rows, strict=True))
    received = {"server": Received(len(uploads), each=uploads, clients=tuple(clients))}
    k = server_context(received=received, spec=Spec(CLASSES, WIDTH, 4, 4, samples=35))
    w = point(*W)
    own, made = rule.step(own or rule.init(w), w, w, k)
    return own.moved, made["w"]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_from_the_logarithms_of_the_shares_at_rate_0_the_mean_is_fedavg_s(optimizer: str) -> None:
    mine = Tiny(fedawa(0.0, start="log", optimizer=optimizer), net=network(norm=True)).run(3)
    plain = Tiny(fedavg(), net=network(norm=True)).run(3)
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=1e-6, atol=1e-6)
    mine.server = plain.server.replace(slots=mine.server.slots)
    mine.step([0, 3])
    plain.step([0, 3])
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-7)
    assert same_bits(mine.server.b, plain.server.b)


def test_two_clients_have_the_worked_numbers() -> None:
    """w^t = (3, 4), T = (¼, ¾): 1 − cos, ‖Δ_k − Δ̄‖, the loss, its gradient, the mean, and T after Adam."""
    rows, rule = double(ROWS), AdaptiveWeights(1e-3, 1)
    distances, p = rule.distances(rows, double(W), 2), double(T).softmax(0)
    assert p.tolist() == pytest.approx([0.3775407, 0.6224593], abs=1e-7)
    assert distances.tolist() == pytest.approx([0.0100505, 0.0161301], abs=1e-7)
    apart = (rows - p @ rows).norm(dim=1)
    assert apart.tolist() == pytest.approx([1.3918614, 0.8442066], abs=1e-7)
    assert float(p @ (distances + apart)) == pytest.approx(1.0648034, abs=1e-7)
    found = slope(double(T), distances, gram(rows))
    assert found.abs().tolist() == pytest.approx([0.2559731] * 2, abs=1e-7)
    assert float(found[0]) > 0 > float(found[1])
    before, after = rule.learned(double(T), distances, gram(rows))
    assert before.tolist() == T
    assert after.tolist() == pytest.approx([0.249, 0.751], abs=1e-7)
    assert after.softmax(0).tolist() == pytest.approx([0.3770708, 0.6229292], abs=1e-7)
    assert (p @ rows).tolist() == pytest.approx([3.3775407, 5.2449187], abs=1e-7)


@pytest.mark.parametrize(("mean_with", "p"), [("before", 0.3775407), ("after", 0.3770708)])
def test_a_step_of_the_server_takes_the_weights_before_or_after_and_keeps_t_by_client(
    mean_with: str, p: float
) -> None:
    """Clients 3 and 1 of 1 and 3 samples of 35, whose T has been moved to ¼ and ¾ before."""
    rule = AdaptiveWeights(1e-3, 1, mean_with=mean_with)
    shift = double([0.0, T[1] - 3 / 35, 0.0, T[0] - 1 / 35])
    moved, w = step(rule, ROWS, [1, 3], [3, 1], Learned(shift))
    assert w.tolist() == pytest.approx([3 + p, 4 * p + 6 * (1 - p)], abs=1e-6)
    assert (moved - shift).tolist() == pytest.approx([0.0, 1e-3, 0.0, -1e-3], abs=1e-8)


@pytest.mark.parametrize("distance", ["cosine", "square"])
def test_the_slope_is_that_of_finite_differences(distance: str) -> None:
    g = torch.Generator().manual_seed(3)
    rows = torch.randn(4, 6, generator=g, dtype=torch.float64)
    t = torch.randn(4, generator=g, dtype=torch.float64)
    w = torch.randn(6, generator=g, dtype=torch.float64)
    c = AdaptiveWeights(1e-3, 1, distance=distance).distances(rows, w, 6)
    if distance == "square":
        assert c.tolist() == pytest.approx((rows - w).square().mean(1).tolist())

    def loss(t: Tensor) -> float:
        p = t.softmax(0)
        return float(p @ (c + (rows - p @ rows).norm(dim=1)))

    found = slope(t, c, gram(rows))
    for k in range(4):
        e = torch.eye(4, dtype=torch.float64)[k] * 1e-5
        assert float(found[k]) == pytest.approx((loss(t + e) - loss(t - e)) / 2e-5, abs=1e-8)


def test_equal_uploads_have_no_slope_and_leave_the_weights() -> None:
    rows = [[0.1, -0.7]] * 3
    assert not bool(gram(double(rows)).any())
    found = slope(double([0.1, 0.2, 0.3]), double([0.5] * 3), gram(double(rows)))
    assert found.abs().max() < 1e-16
    moved, w = step(AdaptiveWeights(1e-3, 5), rows, [1, 2, 3], [0, 1, 2])
    assert moved.abs().max() < 1e-9
    assert w.tolist() == pytest.approx(rows[0], rel=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_permuting_the_clients_permutes_t(optimizer: str) -> None:
    rule = AdaptiveWeights(0.05, 4, optimizer=optimizer, distance="square")
    rows, samples = [[4.0, 4.0], [3.0, 6.0], [-1.0, 0.5]], [4, 5, 6]
    one, w = step(rule, rows, samples, [0, 1, 3])
    order = [2, 0, 1]
    two, again = step(rule, [rows[i] for i in order], [samples[i] for i in order], [1, 2, 3])
    assert [float(two[k]) for k in (1, 2, 3)] == pytest.approx([float(one[k]) for k in (3, 0, 1)], abs=1e-12)
    torch.testing.assert_close(w, again)
    assert float(one[2]) == float(two[0]) == 0.0
    assert min(abs(float(one[k])) for k in (0, 1, 3)) > 1e-3


def test_sgd_has_momentum_and_weight_decay_and_begins_anew_in_every_round() -> None:
    """v ← 0.9 v + g + 5e-4 T, T ← T − 0.01 v: two steps written out, and the first one of a second round."""
    rule, rows = AdaptiveWeights(0.01, 2, optimizer="sgd"), double(ROWS)
    c = rule.distances(rows, double(W), 2)
    t, v = double(T), torch.zeros(2, dtype=torch.float64)
    for _ in range(2):
        v = 0.9 * v + slope(t, c, gram(rows)) + 5e-4 * t
        t = t - 0.01 * v
    before, after = rule.learned(double(T), c, gram(rows))
    torch.testing.assert_close(after, t)
    assert not torch.equal(before, double(T))
    single = AdaptiveWeights(0.01, 1, optimizer="sgd").learned(after, c, gram(rows))[1]
    torch.testing.assert_close(single, after - 0.01 * (slope(after, c, gram(rows)) + 5e-4 * after))


def test_a_client_that_is_absent_keeps_its_t_and_a_new_one_starts_at_its_share() -> None:
    tiny = Tiny(fedawa(0.1))
    tiny.step([0, 2])
    first = of_kind(tiny.server.slots["server"], Learned)
    assert [bool(one) for one in first.moved] == [True, False, True, False]
    tiny.step([1, 2])
    second = of_kind(tiny.server.slots["server"], Learned)
    assert float(second.moved[0]) == float(first.moved[0])
    assert float(second.moved[2]) != float(first.moved[2])
    assert len(second.moved) == len(SIZES)

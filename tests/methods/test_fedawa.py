"""FedAWA (Shi et al. 2025): the server learns the weights of the mean from the updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core.context import Received, Spec
from raffed.core.messages import Upload
from raffed.core.params import Params
from raffed.methods.fedavg import fedavg
from raffed.methods.fedawa import AdaptiveWeights, Learned, fedawa, gram, slope
from tests.tiny import CLASSES, SIZES, WIDTH, Tiny, network, of_kind, point, same_bits, server_context

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

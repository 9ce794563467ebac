"""FedExP (Jhunjhunwala et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from raffed.core.context import Received
from raffed.core.params import Params
from raffed.core.round import evaluated_broadcast
from raffed.methods.fedavg import fedavg
from raffed.methods.fedexp import EarlierModel, Extrapolation, SquaredNorms, extrapolation, fedexp
from tests.quadratics import quadratics, x_of
from tests.tiny import EVERYBODY, Tiny, client_data, same_bits, server_context


def rate(deltas: Sequence[tuple[float, ...]], p: list[float], epsilon: float) -> float:
    """η_g of updates with weights p."""
    moved, weights = torch.tensor(deltas, dtype=torch.float64), torch.tensor(p, dtype=torch.float64)
    mean = (weights[:, None] * moved).sum(0)
    return extrapolation(float((weights * moved.square().sum(1)).sum()), float(mean.square().sum()), epsilon)


def test_two_updates_that_nearly_cancel_go_more_than_eight_times_as_far() -> None:
    """Δ̄ = (0.1, 0.2), so 0.86/(2 · (0.05 + ε))."""
    pair = [(1.0, 0.2), (-0.8, 0.2)]
    assert rate(pair, [0.5, 0.5], 1e-3) == pytest.approx(8.4313725, abs=1e-7)
    assert rate(pair, [0.5, 0.5], 2e-3) == pytest.approx(8.2692308, abs=1e-7)


def test_weights_by_samples_count_in_the_norms_as_in_the_mean() -> None:
    three = [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    p = [0.5, 0.25, 0.25]
    assert rate(three, p, 0.0) == pytest.approx(1.2)
    assert rate(three, p, 1e-3) == pytest.approx(1.1961722, abs=1e-7)
    assert rate(three, p, 3e-3) == pytest.approx(1.1885895, abs=1e-7)


def test_orthogonal_updates_of_equal_norm_go_half_as_many_times_as_far_as_there_are_clients() -> None:
    for clients in (2, 3, 8):
        moved = [tuple(row) for row in torch.eye(clients).tolist()]
        assert rate(moved, [1 / clients] * clients, 0.0) == pytest.approx(max(1.0, clients / 2))


def test_the_rate_is_never_below_1_and_is_1_where_nothing_moves() -> None:
    assert rate([(1.0, 2.0)] * 3, [0.2, 0.3, 0.5], 0.0) == 1.0
    assert rate([(0.0, 0.0)] * 2, [0.5, 0.5], 0.0) == 1.0
    assert extrapolation(1.0, 1.0, 1e9) == 1.0


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


def test_with_an_epsilon_that_dwarfs_all_updates_it_is_fedavg_bit_for_bit() -> None:
    """η_g = 1 takes the mean itself. BatchNorm's statistics are its means, too."""
    exp, avg = fedexp(epsilon=1e6, score="last"), fedavg()
    one, two = (Tiny(method).run(3, EVERYBODY) for method in (exp, avg))
    assert same_bits([one.server.w, one.server.b], [two.server.w, two.server.b])


def test_identical_uploads_are_the_next_model_bit_for_bit() -> None:
    """Σ p ‖Δ‖² / (2 ‖Δ‖²) is a half: four copies of a client whose samples are all the same."""
    one = client_data(8, (1,), 0)
    same = replace(one, x=one.x[:1].repeat(8, 1))
    tiny = Tiny(fedexp(epsilon=0.0, score="last"), data=[same] * 4)
    done = tiny.step(EVERYBODY)
    assert all(same_bits(each.upload.w, done[0].upload.w) for each in done.values())
    assert same_bits(tiny.server.w, done[0].upload.w)


def test_at_its_defaults_its_model_is_another_one_than_fedavg_s() -> None:
    one, two = Tiny(fedexp()).run(3), Tiny(fedavg()).run(3)
    assert not same_bits(one.server.w, two.server.w)


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

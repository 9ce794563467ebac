"""CCVR (Luo et al. 2021)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import WireSum
from raffed.core.context import Spec
from raffed.core.params import State
from raffed.core.round import evaluated_broadcast
from raffed.methods.ccvr import (
    Covariance,
    FeatureMoments,
    Moments,
    PooledMoments,
    ccvr,
    gaussians,
    moments,
    virtual_features,
)
from raffed.methods.fedavg import fedavg
from tests.tiny import EVERYBODY, WIDTH, Tiny, bare_context, network, of_kind, same_bits

ONE, TWO = torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.tensor([[1.0, 0.0], [3.0, 2.0], [2.0, 4.0]])


def told(z: Tensor, y: Tensor, covariance: Covariance = "full", classes: int = 3) -> Moments:
    """What a client with these features sends."""
    k = bare_context(
        spec=Spec(classes, z.shape[1], 4, 4),
        class_counts=torch.bincount(y, minlength=classes),
        features=lambda _: iter([(z[:1], y[:1]), (z[1:], y[1:])]),
    )
    return moments(k, covariance)


def together(*sent: Moments) -> Moments:
    total = WireSum()
    for one in sent:
        total.add(one, "test")
    return of_kind(total.value(), FeatureMoments | PooledMoments)


def test_two_clients_give_the_mean_and_the_unbiased_covariance_of_all_five_features() -> None:
    """(0,1), (2,1) and (1,0), (3,2), (2,4): μ (1.6, 1.6), Σ ((1.3, 0.8), (0.8, 2.3))."""
    sent = together(*(told(z, torch.zeros(len(z), dtype=torch.int64)) for z in (ONE, TWO)))
    mean, spread = gaussians(sent)
    torch.testing.assert_close(mean[0], torch.tensor([1.6, 1.6], dtype=torch.float64))
    expected = torch.tensor([[1.3, 0.8], [0.8, 2.3]], dtype=torch.float64)
    torch.testing.assert_close(spread[0], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(spread[0], torch.cat([ONE, TWO]).T.cov().double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("covariance", ["full", "diagonal", "shared"])
def test_it_does_not_matter_how_samples_are_divided_among_clients(covariance: Covariance) -> None:
    draws = torch.Generator().manual_seed(0)
    z, y = torch.randn(40, 4, generator=draws), torch.randint(0, 3, (40,), generator=draws)
    whole = gaussians(together(told(z, y, covariance)))
    parts = gaussians(together(*(told(z[i::3], y[i::3], covariance) for i in range(3))))
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_a_diagonal_is_that_of_the_full_covariance_and_a_shared_one_the_mean_within_classes() -> None:
    """Shared: (Σ_c (N_c − 1) Σ_c)/(N − C)."""
    draws = torch.Generator().manual_seed(1)
    z, y = torch.randn(30, 4, generator=draws), torch.arange(30) % 3
    _, full = gaussians(told(z, y))
    _, diagonal = gaussians(told(z, y, "diagonal"))
    _, shared = gaussians(told(z, y, "shared"))
    expected = torch.diag_embed(full.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(diagonal, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(shared[0], full.mean(0), rtol=0, atol=1e-5)


def test_a_class_of_one_sample_has_the_mean_variance_and_a_class_of_none_is_not_drawn() -> None:
    z = torch.cat([ONE, TWO, torch.tensor([[9.0, 9.0]])])
    y = torch.tensor([0, 0, 0, 0, 0, 1])
    sent = told(z, y)
    _, spread = gaussians(sent)
    variance = torch.cat([ONE, TWO]).var(0).mean().double()
    torch.testing.assert_close(spread[1], variance * torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-6)
    _, labels = virtual_features(sent, 7, seeds.generator(0, "server"))
    assert torch.bincount(labels, minlength=3).tolist() == [7, 7, 0]


def test_virtual_features_have_the_mean_and_covariance_of_their_class() -> None:
    """20,000 draws: means within 4 σ/√n, covariances within 4 · √2 σ²/√n, with σ² at most 2.3."""
    sent = told(torch.cat([ONE, TWO]), torch.zeros(5, dtype=torch.int64))
    x, _ = virtual_features(sent, 20_000, seeds.generator(0, "server"))
    torch.testing.assert_close(x.mean(0), torch.tensor([1.6, 1.6]), rtol=0, atol=0.045)
    torch.testing.assert_close(x.T.cov(), torch.tensor([[1.3, 0.8], [0.8, 2.3]]), rtol=0, atol=0.095)


def test_features_that_do_not_vary_can_be_drawn() -> None:
    sent = told(torch.full((6, 2), 0.3), torch.zeros(6, dtype=torch.int64))
    x, _ = virtual_features(sent, 100, seeds.generator(0, "server"))
    torch.testing.assert_close(x, torch.full((100, 2), 0.3), rtol=0, atol=1e-3)


def closed(norm: bool = False, bias: bool = True, **args: Any) -> tuple[Tiny, Tiny]:
    """A run of three rounds with CCVR, and FedAvg's first two rounds."""
    net = network(norm, bias)
    return (
        Tiny(ccvr(**args), net=net, rounds=3).run(3, EVERYBODY),
        Tiny(fedavg(), net=network(norm, bias)).run(2, EVERYBODY),
    )


@pytest.mark.parametrize("covariance", ["full", "diagonal", "shared"])
def test_only_the_head_that_is_scored_moves_in_the_last_round(covariance: str) -> None:
    """The body, BatchNorm's statistics and the broadcast are FedAvg's after one round less, bit for bit."""
    tiny, before = closed(norm=True, covariance=covariance)
    assert same_bits([tiny.server.w, tiny.server.b], [before.server.w, before.server.b])
    scored = evaluated_broadcast(tiny.method, tiny.server).w
    changed = [n for n in scored.names if not torch.equal(scored[n], before.server.w[n])]
    assert changed == ["head.weight", "head.bias"]


def test_a_head_without_a_bias_stays_without() -> None:
    tiny, before = closed(bias=False)
    scored = evaluated_broadcast(tiny.method, tiny.server).w
    assert scored.names == before.server.w.names
    assert not torch.equal(scored["head.weight"], before.server.w["head.weight"])


def test_before_the_last_round_it_is_fedavg_in_every_respect() -> None:
    tiny, plain = (Tiny(m, net=network(True), rounds=3).run(2, EVERYBODY) for m in (ccvr(), fedavg()))
    assert same_bits(tiny.everything(), plain.everything())
    assert same_bits(evaluated_broadcast(tiny.method, tiny.server).w, tiny.server.w)
    assert not any(one.upload.slots for one in tiny.last.values())


def test_without_epochs_it_is_fedavg() -> None:
    one, two = (Tiny(m, rounds=3).run(3, EVERYBODY) for m in (ccvr(epochs=0), fedavg()))
    assert same_bits(one.everything(), two.everything())


def test_the_last_upload_is_the_download_and_the_moments_of_the_classes_that_a_client_holds() -> None:
    """Of client 1's two classes: 2 (1 + D + D (D + 1)/2) numbers."""
    tiny, before = closed()
    done = tiny.last[1]
    assert same_bits(done.upload.w, before.server.w)
    sent = done.upload.slots["message"]
    assert sent.nbytes() == 4 * 2 * (1 + WIDTH + WIDTH * (WIDTH + 1) // 2)
    shared, _ = closed(covariance="shared")
    numbers = 3 + 3 * WIDTH + WIDTH * (WIDTH + 1) // 2
    assert shared.last[1].upload.slots["message"].nbytes() == 4 * numbers


def test_retraining_lowers_the_loss_on_the_clients_own_features() -> None:
    tiny, before = closed(virtual=200, retrain_lr=0.1)
    x, y = torch.cat([one.x for one in tiny.data]), torch.cat([one.y for one in tiny.data])

    def loss(broadcast_of: Tiny) -> float:
        sent = evaluated_broadcast(broadcast_of.method, broadcast_of.server)
        return float(torch.nn.functional.cross_entropy(tiny.net.apply(State(sent.w, sent.b), x)[0], y))

    assert loss(tiny) < loss(before)

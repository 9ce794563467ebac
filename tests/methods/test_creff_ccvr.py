"""Classifiers that the server trains anew: CReFF, CCVR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import WireSum
from raffed.core.context import Received, Spec
from raffed.core.params import Params, State
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
from raffed.methods.creff import (
    ClassGradients,
    ClassifierRetraining,
    FeatureGradients,
    Federated,
    RetrainedHead,
    creff,
    gradient_gap,
)
from raffed.methods.fedavg import fedavg
from tests.tiny import EVERYBODY, WIDTH, Tiny, bare_context, network, of_kind, same_bits, server_context

# CReFF (docs/papers/baselines.md, CReFF).

G = torch.Generator().manual_seed(0)


def small(**args: int | float) -> Tiny:
    return Tiny(
        creff(**{"features": 4, "match_steps": 5, "retrain_epochs": 3, **args}), net=network(norm=True)
    )  # type: ignore[arg-type]


def gradients_of(z: torch.Tensor, y: torch.Tensor, head: RetrainedHead) -> ClassGradients:
    counts = torch.bincount(y, minlength=3)
    k = bare_context(
        class_counts=counts, server=head, features=lambda _: iter([(z[:3], y[:3]), (z[3:], y[3:])])
    )
    return FeatureGradients().finish(k)[1]


def test_the_class_gradients_are_those_of_autograd() -> None:
    """(2): and columns of ∂W sum to 0, only ∂b_c is negative; a class without samples sends zeros and no
    holder.
    """
    z, y = torch.randn(8, 5, generator=G), torch.tensor([0, 1, 0, 0, 1, 1, 0, 1])
    head = RetrainedHead(torch.randn(3, 5, generator=G), torch.randn(3, generator=G))
    told = gradients_of(z, y, head)
    for c in (0, 1):
        w, b = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(z[y == c] @ w.T + b, y[y == c])
        wanted = torch.autograd.grad(loss, [w, b])
        torch.testing.assert_close(told.weight[c], wanted[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(told.bias[c], wanted[1], rtol=1e-5, atol=1e-6)
        assert float(told.weight[c].sum(0).abs().max()) < 1e-6
        assert (told.bias[c] < 0).tolist() == [i == c for i in range(3)]
    assert float(told.weight[2].abs().max()) == 0.0
    assert told.holders.tolist() == [1, 1, 0]


def test_federated_features_that_are_the_real_ones_match_up_to_the_codes_epsilon_and_stay() -> None:
    """(3): of a row of norm n the official cosine leaves 1 − n²/(n² + 1e-6) = 1e-6/(n² + 1e-6), and a
    slope of about 1e-6/n³.
    """
    z, y = torch.randn(9, 5, generator=G), torch.arange(3).repeat_interleave(3)
    head = RetrainedHead(0.3 * torch.randn(3, 5, generator=G), 0.3 * torch.randn(3, generator=G))
    told = gradients_of(z, y, head)
    points = z.reshape(3, 3, 5).clone().requires_grad_()
    gap = gradient_gap(points, head.weight, head.bias, told.weight, told.bias)
    left = [
        (1e-6 / (square + 1e-6)).sum(-1)
        for square in (told.weight.square().sum(-1), told.bias.square().sum(-1)[:, None])
    ]
    torch.testing.assert_close(gap.detach(), left[0] + left[1], rtol=0, atol=2e-6)
    assert float(torch.autograd.grad(gap.sum(), points)[0].abs().max()) < 1e-3


@pytest.mark.parametrize(
    ("length", "cosine"), [(1e-3, 0.5), (1e-3, -0.5), (1e-4, 0.01 / 1.01), (1.0, 1 / 1.000001), (0.0, 0.0)]
)
def test_the_cosine_has_the_official_codes_1e_6_beside_the_product_of_the_norms(
    length: float, cosine: float
) -> None:
    """a·b/(‖a‖ ‖b‖ + 1e-6): two vectors of length 1e-3 in one direction have ½, opposite ones −½, one of
    zeros 0 and no NaN.

        Through `gradient_gap` with one feature a class: under a head of zeros p = (½, ½), so the gradient of
        class 0 on the feature x has the rows −x/2 and x/2 and the bias (−½, ½). Here ‖x/2‖ = 1, and the goals
        have the same direction or the opposite one and the length `length`², so that the product of the norms
        is `length`².
    """
    x = torch.tensor([[[2.0, 0.0]], [[2.0, 0.0]]], dtype=torch.float64)  # ‖x/2‖ = 1
    head = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    sign = -1.0 if cosine < 0 else 1.0
    goal = (
        sign
        * length**2
        * torch.tensor([[[-1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]]], dtype=torch.float64)
    )
    # (½)² + (½)² = ½: cosine ½/(½ + 1e-6)
    bias = torch.tensor([[-0.5, 0.5], [0.5, -0.5]], dtype=torch.float64)
    gap = gradient_gap(x, *head, goal, bias)
    wanted = 2 * (1 - cosine) + 1e-6 / (0.5 + 1e-6)
    assert gap.tolist() == pytest.approx([wanted, wanted], abs=1e-9)


def test_the_class_gradients_are_of_the_downloaded_encoder() -> None:
    """Step 1: features of θ^t, not of what local training made of it."""
    start, trained = (State(Params({"body.w": torch.full((1,), v)}), Params({})) for v in (1.0, 2.0))
    z, y = torch.randn(6, 5, generator=G), torch.tensor([0, 1, 2, 0, 1, 2])
    asked: list[State] = []

    def features(state: State) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        asked.append(state)
        yield z, y

    head = RetrainedHead(torch.randn(3, 5, generator=G), torch.zeros(3))
    FeatureGradients().finish(bare_context(start=start, state=trained, server=head, features=features))
    assert len(asked) == 1
    assert asked[0] is start


def server_step(
    rule: ClassifierRetraining, own: Federated, told: ClassGradients, round: int = 0
) -> Federated:
    """A step with FedAvg's head far from Ŵ."""
    mean = Params(
        {"body.w": torch.zeros(1), "head.weight": torch.full((3, 5), 7.0), "head.bias": torch.arange(3.0)}
    )
    k = server_context(round=round, received={"message": Received(1, sum=told)})
    return rule.step(own, mean, mean, k)[0]


def test_gradients_are_matched_under_the_head_that_was_broadcast() -> None:
    """Steps 1, 5: under Ŵ the real features match and stay; under another head the same goals would move
    them.
    """
    z, y = torch.randn(9, 5, generator=G), torch.arange(3).repeat_interleave(3)
    sent, other = (
        RetrainedHead(0.3 * torch.randn(3, 5, generator=G), 0.3 * torch.randn(3, generator=G))
        for _ in range(2)
    )
    told = gradients_of(z, y, sent)
    points = z.reshape(3, 3, 5)
    rule = ClassifierRetraining(3, 5, 1.0, 1, 0.01)
    same = server_step(rule, Federated(points, sent.weight, sent.bias), told).features
    moved = server_step(rule, Federated(points, other.weight, other.bias), told).features
    torch.testing.assert_close(same, points, rtol=0, atol=1e-3)
    assert float((moved - points).abs().max()) > 0.05


def test_the_retrained_head_starts_fresh_every_round() -> None:
    """Step 6: with a rate of 0 Ŵ is the draw itself, torch's U(±1/√d): neither the old Ŵ nor FedAvg's
    head nor 0.
    """
    z, y = torch.randn(9, 5, generator=G), torch.arange(3).repeat_interleave(3)
    old = RetrainedHead(torch.full((3, 5), 9.0), torch.full((3,), 9.0))
    own, rule = Federated(z.reshape(3, 3, 5), old.weight, old.bias), ClassifierRetraining(3, 0, 0.1, 1, 0.0)
    heads = [server_step(rule, own, gradients_of(z, y, old), round) for round in (0, 0, 1)]
    for head in heads:
        numbers = torch.cat([head.weight.flatten(), head.bias])
        assert float(numbers.abs().max()) <= 5**-0.5
        assert float(numbers.abs().min()) > 0
        assert float(numbers.std()) == pytest.approx((5 * 3) ** -0.5, rel=0.4)
    assert same_bits(heads[0], heads[1])
    assert not same_bits(heads[0].weight, heads[2].weight)


def test_the_distance_ignores_the_scale_of_the_goal() -> None:
    """(4)."""
    points = torch.randn(3, 4, 5, generator=G)
    w = torch.randn(3, 5, generator=G)
    b = torch.randn(3, generator=G)
    goal, bias = torch.randn(3, 3, 5, generator=G), torch.randn(3, 3, generator=G)
    one, ten = gradient_gap(points, w, b, goal, bias), gradient_gap(points, w, b, 10 * goal, 10 * bias)
    torch.testing.assert_close(one, ten, rtol=1e-5, atol=1e-5)
    assert float(one.min()) > 0


def test_without_retraining_the_scored_model_is_fedavgs_and_with_it_only_the_head_differs() -> None:
    """(5)."""
    none, some = small(match_steps=0, retrain_epochs=0).run(2), small().run(2)
    assert same_bits(evaluated_broadcast(none.method, none.server).w, none.server.w)
    found = evaluated_broadcast(some.method, some.server).w
    for n in found.names:
        assert torch.equal(found[n], some.server.w[n]) != n.startswith("head."), n


def test_a_class_without_a_holder_keeps_its_features_bit_for_bit_and_the_others_move() -> None:
    """(5): clients 0 and 2 hold classes 0 and 1."""
    tiny = small().run(1, [0, 1, 2, 3])
    before = tiny.server.slots["server"]
    tiny.step([0, 2])
    after = tiny.server.slots["server"]
    assert isinstance(before, Federated)
    assert isinstance(after, Federated)
    assert [torch.equal(before.features[c], after.features[c]) for c in range(3)] == [False, False, True]


def test_matching_brings_the_gradients_closer_and_retraining_learns_the_features() -> None:
    """200 steps halve the distance at least; on separable features the fresh head is right everywhere."""
    z, y = torch.randn(9, 5, generator=G), torch.arange(3).repeat_interleave(3)
    head = RetrainedHead(torch.randn(3, 5, generator=G), torch.randn(3, generator=G))
    told = gradients_of(z, y, head)
    points = torch.randn(3, 4, 5, generator=G)
    first = float(gradient_gap(points, head.weight, head.bias, told.weight, told.bias).sum())
    for _ in range(200):
        live = points.detach().requires_grad_()
        loss = gradient_gap(live, head.weight, head.bias, told.weight, told.bias).sum()
        points = points - 0.1 * torch.autograd.grad(loss, live)[0]
    assert float(loss.detach()) < first / 2
    corners = 5 * torch.eye(3, 5)[:, None, :] + 0.1 * torch.randn(3, 6, 5, generator=G)
    learned = ClassifierRetraining(6, 0, 0.1, 50, 0.1).retrained(corners, torch.Generator().manual_seed(1))
    hits = (corners @ learned.weight.T + learned.bias).argmax(-1) == torch.arange(3)[:, None]
    assert bool(hits.all())


def test_the_retrained_head_is_broadcast_and_the_features_are_not() -> None:
    tiny = small().run(2, [0, 1])
    sent = tiny.server.broadcast()
    assert set(sent.slots) == {"message"}
    own = of_kind(tiny.server.slots["server"], Federated)
    assert same_bits(sent.slots["message"], [own.weight, own.bias])
    # Client 0 holds two classes
    assert sum(tiny.last[0].upload.slots["message"].numbers().values()) == 2 * (3 * 5 + 3)


# CCVR (Luo et al. 2021).

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

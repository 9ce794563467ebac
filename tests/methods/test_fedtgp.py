"""FedTGP (Zhang et al. 2024)."""

from __future__ import annotations

import pytest
import torch

from raffed.core.context import Received
from raffed.core.params import Params
from raffed.methods.common import Prototypes
from raffed.methods.fedtgp import (
    OwnPrototypes,
    PrototypeGenerator,
    PrototypeTraining,
    fedtgp,
    margin_of,
    prototypes,
    separation,
)
from raffed.methods.solo import solo
from tests.tiny import CLASSES, EVERYBODY, WIDTH, Tiny, client_data, of_kind, same_bits, server_context

Q = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
LABELS = torch.tensor([0, 1, 2])


def test_without_a_pull_it_is_local_training_bit_for_bit() -> None:
    one, two = Tiny(fedtgp(lam=0.0)).run(3), Tiny(solo()).run(3)
    assert same_bits(one.everything(), two.everything())
    assert not same_bits(Tiny(fedtgp()).run(3).client_states[0].v, two.client_states[0].v)


def test_the_margin_is_the_largest_of_the_distances_to_the_nearest_other_class() -> None:
    """(0, 0), (3, 4), (0, 2): nearest others at 2, √13 and 2. A smaller limit wins."""
    assert margin_of(Q, LABELS, 3, 100.0) == pytest.approx(3.6055513)
    assert margin_of(Q, LABELS, 3, 1.5) == 1.5
    assert margin_of(Q[:1], LABELS[:1], 3, 100.0) == 100.0


def test_clients_of_any_size_count_once_in_a_class_s_mean() -> None:
    """Two clients send class 0 as (1, 0) and (−1, 0): its mean is (0, 0)."""
    q = torch.cat([torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), Q[1:]])
    assert margin_of(q, torch.tensor([0, 0, 1, 2]), 3, 100.0) == pytest.approx(3.6055513)


def test_the_margin_makes_the_true_class_harder() -> None:
    """Distances 1, 3 and 2 of a class-0 mean: the loss is 0.4076060, and 2.9714033 with δ = √13."""
    p = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]])
    q, y = torch.zeros(1, 2), torch.tensor([0])
    assert float(separation(q, y, p, 0.0)) == pytest.approx(0.4076060, abs=1e-6)
    assert float(separation(q, y, p, 3.6055513)) == pytest.approx(2.9714033, abs=1e-6)


def test_a_mean_that_equals_its_prototype_has_a_finite_gradient() -> None:
    p = Q.clone().requires_grad_()
    (slope,) = torch.autograd.grad(separation(Q, LABELS, p, 1.0), [p])
    assert bool(torch.isfinite(slope).all())


def test_a_class_that_nobody_has_sent_pulls_nothing_and_is_never_predicted() -> None:
    data = [client_data(8, (0, 1), seed) for seed in range(4)]
    tiny = Tiny(fedtgp(), data=data).run(2, EVERYBODY)
    sent = of_kind(tiny.server.slots["personal"], Prototypes)
    assert sent.known.tolist() == [True, True, False]
    moved = sent.replace(mean=sent.mean + 9.0 * torch.tensor([0.0, 0.0, 1.0])[:, None])
    broadcast = tiny.server.broadcast()
    one, two = (
        tiny.visit(0, broadcast=broadcast.replace(slots={"personal": slots})) for slots in (sent, moved)
    )
    assert same_bits(one.trained, two.trained)
    personal = tiny.method.personal
    assert personal is not None
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert set(one.personal_logits(personal, x).argmax(1).tolist()) <= {0, 1}


def test_without_server_epochs_prototypes_are_the_untrained_map_s() -> None:
    tiny = Tiny(fedtgp(server_epochs=0)).run(2, EVERYBODY)
    kept, sent = tiny.server.slots["server"], tiny.server.slots["personal"]
    assert isinstance(kept, PrototypeGenerator)
    assert isinstance(sent, Prototypes)
    other = of_kind(Tiny(fedtgp(server_epochs=0)).run(1, [0]).server.slots["server"], PrototypeGenerator)
    assert same_bits(kept.net, other.net)
    torch.testing.assert_close(sent.mean, prototypes(kept.net))


def test_no_weights_are_sent_and_class_means_are() -> None:
    """C·D numbers, and a flag of one byte for each class."""
    tiny = Tiny(fedtgp()).run(2, EVERYBODY)
    for client, done in tiny.last.items():
        assert len(done.upload.w) == len(done.upload.b) == 0
        assert done.upload.nbytes() == 4 * CLASSES * WIDTH + CLASSES
        told = of_kind(done.upload.slots["personal"], OwnPrototypes)
        z, y = tiny.net.apply(done.trained, tiny.data[client].x)[1], tiny.data[client].y
        for label in y.unique():
            torch.testing.assert_close(told.mean[label], z[y == label].mean(0))
    assert not len(tiny.server.w)


def test_training_brings_each_prototype_nearest_to_its_class() -> None:
    """Three class means far apart: from a random map to one whose P_c is the nearest to the mean of c."""
    told = OwnPrototypes(3 * torch.eye(CLASSES, WIDTH), torch.ones(CLASSES, dtype=torch.bool))
    k = server_context(received={"personal": Received(1, each=(told,))})
    nothing = Params({})
    for epochs, right in ((0, False), (300, True)):
        made, _ = PrototypeTraining(epochs, 0.05, 10, 100.0).step(None, nothing, nothing, k)
        nearest = torch.cdist(told.mean, prototypes(made.net)).argmin(1)
        assert (nearest.tolist() == list(range(CLASSES))) == right


def test_a_client_is_scored_by_the_nearest_prototype_once_there_are_some() -> None:
    tiny = Tiny(fedtgp())
    personal = tiny.method.personal
    assert personal is not None
    done = tiny.step(EVERYBODY)[3]
    x = tiny.data[3].x
    own = tiny.net.apply(done.trained, x)[0]
    assert torch.equal(done.personal_logits(personal, x), own)
    later = tiny.step(EVERYBODY)[3]
    z, view = tiny.net.apply(later.trained, x)[1], tiny.context(3, "personal")
    expected = torch.cdist(z, view.server.mean).argmin(1)
    assert torch.equal(later.personal_logits(personal, x).argmax(1), expected)

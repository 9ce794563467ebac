"""FedAwS, FedMMD (docs/papers/baselines.md), FedProto (docs/papers/baselines-personal.md) and FedTGP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

import raffed
from raffed import Federation
from raffed.core.context import Received
from raffed.core.params import Params
from raffed.core.round import ClientRound
from raffed.core.seeds import generator
from raffed.core.training.sgd import batch_stream
from raffed.errors import UsageError
from raffed.methods.common import ClassSums, HeldSums, Prototypes
from raffed.methods.fedavg import fedavg
from raffed.methods.fedaws import Spreadout, fedaws, spreadout
from raffed.methods.fedmmd import fedmmd
from raffed.methods.fedproto import PrototypePull, fedproto, prototype_pull
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
from tests.tiny import (
    CLASSES,
    EVERYBODY,
    PLAIN,
    WIDTH,
    Tiny,
    bare_context,
    client_data,
    clients,
    digits,
    forward,
    module,
    network,
    of_kind,
    same_bits,
    server_context,
)

G = torch.Generator().manual_seed(0)


def spread(w: torch.Tensor, nu: float, steps: int, lr: float) -> torch.Tensor:
    mean = Params({"body.fc": torch.ones(2), "head.weight": w}).clone()
    after = Spreadout(nu, steps, lr).step(None, mean, mean, server_context())[1]
    assert torch.equal(after["body.fc"], torch.ones(2))
    return after["head.weight"]


def test_30_server_steps_leave_the_encoder_bit_for_bit() -> None:
    """(b). (a) is among the equalities."""
    plain, some = (Tiny(m, net=network(True)).run(1, [0, 1, 2, 3]) for m in (fedavg(), fedaws()))
    for n in plain.server.w.names:
        assert torch.equal(plain.server.w[n], some.server.w[n]) == (n != "head.weight")


def test_its_gradient_is_orthogonal_to_every_row() -> None:
    """(c): scale invariance."""
    w = torch.randn(6, 8, generator=G, dtype=torch.float64).requires_grad_()
    (g,) = torch.autograd.grad(spreadout(w, 0.9), w)
    assert float((g * w.detach()).sum(1).abs().max()) < 1e-15
    assert float(g.abs().max()) > 1e-4


def test_orthogonal_rows_feel_nothing_up_to_nu_one_half() -> None:
    """(d): d = ½."""
    w = torch.eye(4, dtype=torch.float64).requires_grad_()
    assert float(torch.autograd.grad(spreadout(w, 0.5), w)[0].abs().max()) == 0.0
    assert float(torch.autograd.grad(spreadout(w, 0.6), w)[0].abs().max()) > 0.0


@pytest.mark.parametrize(("nu", "value"), [(0.9, 0.187778), (0.8, 0.117778)])
def test_optimisation_from_random_rows_reaches_the_simplex_bound(nu: float, value: float) -> None:
    """(e): C = 10, value of MAP's code, which includes the diagonal ν²/C."""
    w = spread(torch.randn(10, 16, generator=G), nu, 500, 1.0)
    assert float(spreadout(w, nu)) + nu**2 / 10 == pytest.approx(value, abs=2e-4)
    unit = torch.nn.functional.normalize(w, dim=-1)
    distance = ((1 - unit @ unit.T) / 2).sum() / 90
    assert float(distance) <= 10 / 18 + 1e-5  # C/(2(C − 1))


def test_collapsed_rows_stay_together() -> None:
    """(f)."""
    w = torch.randn(5, 8, generator=G)
    w[1] = w[3]
    after = spread(w, 0.9, 20, 1.0)
    torch.testing.assert_close(after[1], after[3], rtol=1e-5, atol=1e-5)
    assert float((after[1] - w[1]).abs().max()) > 0.1


def test_the_spreadout_steps_are_those_of_sgd_with_momentum() -> None:
    """Momentum 0.9, as in MAP's code: three steps against torch's own, from which plain SGD departs in
    the second.
    """
    w = torch.randn(6, 8, generator=torch.Generator().manual_seed(4))
    live = w.clone().requires_grad_()
    sgd = torch.optim.SGD([live], lr=0.5, momentum=0.9)
    for steps in (1, 2, 3):
        sgd.zero_grad()
        spreadout(live, 0.9).backward()
        sgd.step()
        torch.testing.assert_close(spread(w, 0.9, steps, 0.5), live.detach(), rtol=1e-5, atol=1e-6)


def test_fedmmds_first_step_is_fedavgs_without_batchnorm_and_not_with_it() -> None:
    """(b): MMD = 0 with zero gradient while local and global features agree; training statistics break
    that.
    """
    local = replace(PLAIN, epochs=1, batch_size=64)
    for norm in (False, True):
        mine, plain = (Tiny(m, net=network(norm), local=local).visit(1) for m in (fedmmd(5.0), fedavg()))
        gap = float((mine.trained.w - plain.trained.w).sq_norm())
        assert gap > 1e-8 if norm else gap < 1e-14


@pytest.mark.parametrize("cohort", [False, True])
def test_fedmmds_first_step_is_fedavgs_for_clients_of_one_sample_also_in_a_stack(cohort: bool) -> None:
    """(b) again: features that differ by rounding alone agree, however near the bands of the kernel are."""
    data = clients(((0,), (1,), (2,), (0,)), (1, 1, 1, 1))
    mine, plain = (Tiny(m, data=data, cohort=cohort).step([0, 1, 2, 3]) for m in (fedmmd(5.0), fedavg()))
    for client in range(4):
        assert float((mine[client].trained.w - plain[client].trained.w).sq_norm()) < 1e-12


def test_fedmmds_frozen_stream_is_the_downloaded_model_also_at_a_first_visit_in_a_later_round() -> None:
    """(b) again: the server has moved on for two rounds, so features under the run's initial model would
    not agree.
    """
    local = replace(PLAIN, epochs=1, batch_size=64)
    mine, plain = Tiny(fedmmd(5.0), local=local).run(2, [1, 2, 3]), Tiny(fedavg(), local=local)
    plain.server = mine.server
    assert float((mine.visit(0).trained.w - plain.visit(0).trained.w).sq_norm()) < 1e-14


def test_fedmmds_frozen_stream_stays_as_it_was_downloaded() -> None:
    """(c): no gradient reaches it, no step and no running statistic moves it."""
    tiny = Tiny(fedmmd(1.0), net=network(norm=True)).run(2)
    sent = tiny.server.broadcast()
    done = tiny.visit(1)
    assert same_bits(done.start.w, sent.w)
    assert same_bits(done.start.b, sent.b)
    assert not same_bits(done.trained.b, sent.b)
    assert not any(t.requires_grad for t in done.start.w.tensors.values())


@pytest.mark.parametrize("norm", [False, True])
def test_fedproto_without_pull_is_solo_bit_for_bit(norm: bool) -> None:
    """(a): models and statistics; prototypes travel all the same."""
    mine, alone = Tiny(fedproto(0.0), net=network(norm)).run(3), Tiny(solo(), net=network(norm)).run(3)
    for client in alone.client_states:
        assert same_bits(mine.client_states[client], alone.client_states[client])


def test_the_pull_is_the_mean_squared_error_over_samples_with_a_prototype() -> None:
    """Class 2 has none: its row is NaN and must not matter; gradient 2(h − g)/(d·anchors)."""
    z, y = torch.randn(5, 4, generator=G, dtype=torch.float64).requires_grad_(), torch.tensor([0, 1, 2, 0, 2])
    g, known = torch.randn(3, 4, generator=G, dtype=torch.float64), torch.tensor([True, True, False])
    g[2] = float("nan")
    loss = prototype_pull(z, y, g, known)
    rows = [0, 1, 3]
    d = z.detach()
    assert float(loss.detach()) == pytest.approx(float((d[rows] - g[y[rows]]).square().mean()), rel=1e-12)
    (slope,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(slope[rows], 2 * (d[rows] - g[y[rows]]) / (4 * 3))
    assert float(slope[[2, 4]].abs().max()) == 0.0
    nobody = prototype_pull(z, y, g, torch.zeros(3, dtype=torch.bool))
    assert float(nobody.detach()) == 0.0


def test_prototypes_are_pooled_class_means_and_an_absent_class_keeps_its_last_one() -> None:
    """(b), (c), (d): sums (0, 4) and counts (1, 3) → 1.0; class 1 was known, class 2 never seen."""
    term, spec = PrototypePull(1.0), Tiny(fedproto()).spec
    before = Prototypes(torch.tensor([[9.0], [7.0], [0.0]]), torch.tensor([False, True, False]))
    got = ClassSums(torch.tensor([[4.0], [0.0], [0.0]]), torch.tensor([4, 0, 0]))
    after = term.server_step(before, Received(2, sum=got), spec)
    assert after.mean.tolist() == [[1.0], [7.0], [0.0]]
    assert after.known.tolist() == [True, True, False]
    first = ClassSums(torch.tensor([[0.0], [0.0], [5.0]]), torch.tensor([0, 0, 1]))
    later = term.server_step(after, Received(1, sum=first), spec)
    assert later.mean.tolist() == [[1.0], [7.0], [5.0]]  # not averaged with zeros


def class_mean(tiny: Tiny, client: int, label: int) -> torch.Tensor:
    """The mean feature of a class [D] under the model that the client trained in the last round."""
    data = tiny.data[client]
    return tiny.net.apply(tiny.last[client].trained, data.x)[1][data.y == label].mean(0)


def known(tiny: Tiny) -> Prototypes:
    """The server's prototypes."""
    return of_kind(tiny.server.slots["term-PrototypePull"], Prototypes)


def close(got: torch.Tensor, *rows: torch.Tensor) -> None:
    """Sums travel in steps of 2^-24."""
    torch.testing.assert_close(got, torch.stack(rows), rtol=1e-5, atol=1e-6)


def test_prototypes_are_those_of_the_trained_models_pooled_over_the_participants_samples() -> None:
    """(b), through the round: class 1 is held by client 0 (4 samples of 8) and by client 1 (5 of 10)."""
    tiny = Tiny(fedproto())
    tiny.step([0, 1])
    both = (4 * class_mean(tiny, 0, 1) + 5 * class_mean(tiny, 1, 1)) / 9
    close(known(tiny).mean, class_mean(tiny, 0, 0), both, class_mean(tiny, 1, 2))


def test_the_authors_pull_is_the_summed_square_between_batch_class_means_and_prototypes() -> None:
    """Classes 0 (rows 0, 3) and 1 (row 1) of [C]'s mean over classes; class 2 has no prototype: a row of NaN
    that pulls nothing.

        L = λ/2 (‖z̄_0 − g_0‖² + ‖z_1 − g_1‖²), so ∂L/∂z_0 = ∂L/∂z_3 = λ (z̄_0 − g_0)/2 and ∂L/∂z_1 = λ (z_1 −
        g_1).
    """
    draw = torch.Generator().manual_seed(5)
    z = torch.randn(5, 4, generator=draw, dtype=torch.float64).requires_grad_()
    y = torch.tensor([0, 1, 2, 0, 2])
    g = torch.randn(3, 4, generator=draw, dtype=torch.float64)
    g[2] = float("nan")
    (term,) = fedproto(0.3, preset="authors").terms
    told = Prototypes(g, torch.tensor([True, True, False]))
    loss = term.loss(forward(z, y), bare_context(server=told))
    d = z.detach()
    first, second = (d[0] + d[3]) / 2 - g[0], d[1] - g[1]
    assert float(loss.detach()) == pytest.approx(
        0.15 * float(first.square().sum() + second.square().sum()), rel=1e-12
    )
    (slope,) = torch.autograd.grad(loss, z)
    nothing = torch.zeros(4, dtype=torch.float64)
    torch.testing.assert_close(slope, 0.3 * torch.stack([first / 2, second, nothing, first / 2, nothing]))
    nobody = term.loss(
        forward(z, y), bare_context(server=told.replace(known=torch.zeros(3, dtype=torch.bool)))
    )
    assert float(nobody.detach()) == 0.0


def halfway(before: Prototypes, total: list[float], count: list[int]) -> Prototypes:
    """What the authors' server makes of sums of features (one feature, three classes) and of how often
    each class was seen.
    """
    (term,) = fedproto(preset="authors").terms
    got = ClassSums(torch.tensor(total)[:, None], torch.tensor(count))
    return of_kind(term.server_step(before, Received(2, sum=got), Tiny(fedproto()).spec), Prototypes)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_authors_server_weights_prototypes_by_counts_and_goes_half_of_the_way(sign: float) -> None:
    """[C]: Σ n_kc q_kc / Σ n_kc: 0 of one sample and 10 of nine give 90/10 = 9, where unweighted means would
    give 5.

        Class 0 is new and goes all of the way, class 1 goes from −3 half of the way, (−3 + 9)/2 = 3, class 2
        is absent and stays.
    """
    before = Prototypes(sign * torch.tensor([[0.0], [-3.0], [7.0]]), torch.tensor([False, True, True]))
    after = halfway(before, [sign * (1 * 0.0 + 9 * 10.0)] * 2 + [0.0], [10, 10, 0])
    assert after.mean.tolist() == [[sign * 9.0], [sign * 3.0], [sign * 7.0]]
    assert after.known.tolist() == [True, True, True]
    nobody = halfway(before, [0.0, 0.0, 0.0], [0, 0, 0])
    assert nobody.known.tolist() == [False, True, True]


@pytest.mark.parametrize("cohort", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_the_authors_prototypes_are_the_features_seen_while_training(norm: bool, cohort: bool) -> None:
    """[C]: Σ over all steps of the batch's features, in training mode and before the step, so 2 · n_c of them
    in two epochs.

        The training of round 0 (plain SGD, no prototypes yet) is written out, step by step.
    """
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0, epochs=2)
    tiny = Tiny(fedproto(1.0, preset="authors"), net=network(norm), local=local, cohort=cohort)
    done = tiny.step([0, 1, 3])
    for client in (0, 1, 3):
        net, data = module(norm).train(), tiny.data[client]
        total = torch.zeros(3, 5)
        for index in batch_stream(data.n, local.steps(data.n), local, generator(0, "batches", 0, client, 0)):
            logits, z = net(data.x[index])
            for label in range(3):
                total[label] += z[data.y[index] == label].sum(0).detach()
            slopes = torch.autograd.grad(
                torch.nn.functional.cross_entropy(logits, data.y[index]), list(net.parameters())
            )
            with torch.no_grad():
                for p, g in zip(net.parameters(), slopes, strict=True):
                    p -= 0.1 * g
        sent = of_kind(done[client].upload.slots["term-PrototypePull"], HeldSums)
        torch.testing.assert_close(sent.total, total, rtol=1e-5, atol=1e-5)
        assert sent.count.tolist() == (2 * data.class_counts).tolist()


def test_and_in_further_rounds_they_go_half_of_the_way_to_what_was_seen() -> None:
    """Two rounds through the kernel, from what was sent: class 1 is held by both, class 2 by client 1,
    who is absent at first.
    """
    tiny = Tiny(fedproto(preset="authors"))
    first = sums(tiny.step([0]))
    close(known(tiny).mean[:2], *(first.total[c] / first.count[c] for c in (0, 1)))
    assert known(tiny).known.tolist() == [True, True, False]
    old, both = known(tiny).mean, sums(tiny.step([0, 1]))
    new = [both.total[c] / both.count[c] for c in range(3)]
    close(known(tiny).mean, (old[0] + new[0]) / 2, (old[1] + new[1]) / 2, new[2])
    before = known(tiny).mean
    tiny.step([0])
    assert torch.equal(known(tiny).mean[2], before[2])


def sums(done: Mapping[int, ClientRound]) -> HeldSums:
    """What these clients sent of their classes, added up."""
    sent = [one.upload.slots["term-PrototypePull"] for one in done.values()]
    held = [one for one in sent if isinstance(one, HeldSums)]
    assert len(held) == len(done)
    return HeldSums(
        sum((one.total for one in held[1:]), held[0].total),
        sum((one.count for one in held[1:]), held[0].count),
    )


# FedProto scored by the nearest prototype (Tan et al. 2022), as PFLlib does.

NEAREST = fedproto(0.5, predict_by="prototype")


def judging(tiny: Tiny) -> Prototypes:
    return of_kind(tiny.server.slots["personal"], Prototypes)


@pytest.mark.parametrize("cohort", [0, 4])
def test_training_and_messages_are_those_of_fedproto_bit_for_bit(cohort: int) -> None:
    mine, plain = (Tiny(method, cohort=cohort).run(3) for method in (NEAREST, fedproto(0.5)))
    for client in plain.client_states:
        assert same_bits(mine.client_states[client].v, plain.client_states[client].v)
    theirs = of_kind(plain.server.slots["term-PrototypePull"], Prototypes)
    assert torch.equal(judging(mine).mean, theirs.mean)
    assert torch.equal(judging(mine).known, theirs.known)


def test_a_client_answers_with_the_nearest_prototype_of_those_that_it_downloaded() -> None:
    tiny = Tiny(NEAREST).run(2)
    sent = judging(tiny)
    done = tiny.visit(1)
    assert NEAREST.personal is not None
    x = tiny.data[1].x
    z = tiny.net.apply(done.trained, x)[1]
    gaps = torch.cdist(z.double(), sent.mean.double())
    assert torch.equal(done.personal_logits(NEAREST.personal, x).argmax(1), gaps.argmin(1))


def test_a_class_that_nobody_has_sent_is_never_the_answer() -> None:
    """Client 0 has the classes 0 and 1 of three, and it alone has sent."""
    tiny = Tiny(NEAREST)
    tiny.step([0])
    assert judging(tiny).known.tolist() == [True, True, False]
    done = tiny.visit(1)
    assert NEAREST.personal is not None
    assert int(done.personal_logits(NEAREST.personal, tiny.data[1].x).argmax(1).max()) < 2


def test_before_the_first_prototypes_the_classifier_answers() -> None:
    done, tiny = Tiny(NEAREST).visit(0), Tiny(NEAREST)
    assert NEAREST.personal is not None
    x = tiny.data[0].x
    assert torch.equal(done.personal_logits(NEAREST.personal, x), tiny.net.apply(done.trained, x)[0])


def test_the_authors_preset_has_no_such_scores() -> None:
    with pytest.raises(UsageError, match="leave one of the two out"):
        fedproto(preset="authors", predict_by="prototype")


def test_a_run_writes_the_same_weights_and_other_scores() -> None:
    config = digits("p4c3", 16, method="fedproto", local_test=0.3, federation=Federation(3, survey=3))
    plain, mine = (raffed.run(replace(config, args=args)) for args in ({}, {"predict_by": "prototype"}))
    scores = [one.to_pandas() for one in (plain, mine)]
    trained = [one[one["metric"] == "loss"]["value"].tolist() for one in scores]
    assert trained[0] == trained[1]
    between = [one[(one["metric"] == "accuracy_between") & one["client"].isna()] for one in scores]
    assert between[0]["value"].tolist() != between[1]["value"].tolist()
    assert between[1]["value"].iloc[-1] > 0.5


# FedTGP (Zhang et al. 2024).

Q = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
LABELS = torch.tensor([0, 1, 2])


def test_fedtgp_without_a_pull_is_local_training_bit_for_bit() -> None:
    one, two = Tiny(fedtgp(lam=0.0)).run(3), Tiny(solo()).run(3)
    assert same_bits(one.everything(), two.everything())
    assert not same_bits(Tiny(fedtgp()).run(3).client_states[0].v, two.client_states[0].v)


@pytest.mark.parametrize(
    ("q", "labels", "limit", "margin"),
    [
        (Q, [0, 1, 2], 100.0, 3.6055513),
        (Q, [0, 1, 2], 1.5, 1.5),  # a smaller limit wins
        (Q[:1], [0], 100.0, 100.0),
        (torch.cat([torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), Q[1:]]), [0, 0, 1, 2], 100.0, 3.6055513),
    ],
)
def test_the_margin_is_the_largest_of_the_distances_to_the_nearest_other_class(
    q: torch.Tensor, labels: list[int], limit: float, margin: float
) -> None:
    """(0, 0), (3, 4), (0, 2): nearest others at 2, √13 and 2. Two clients that send class 0 as (1, 0) and
    (−1, 0) count once each: its mean is (0, 0).
    """
    assert margin_of(q, torch.tensor(labels), 3, limit) == pytest.approx(margin)


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


def test_class_means_under_the_trained_models_are_sent() -> None:
    tiny = Tiny(fedtgp()).run(2, EVERYBODY)
    for client, done in tiny.last.items():
        told = of_kind(done.upload.slots["personal"], OwnPrototypes)
        z, y = tiny.net.apply(done.trained, tiny.data[client].x)[1], tiny.data[client].y
        for label in y.unique():
            torch.testing.assert_close(told.mean[label], z[y == label].mean(0))


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

"""Several models at the server: IFCA, FedFew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from raffed.core import seeds
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import ClientData, Received
from raffed.core.messages import Broadcast, ServerState, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State, redrawn
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.fedfew import BestOfFew, FewTrained, TchebycheffSet, fedfew, few_weights
from raffed.methods.fedopt import Weighting
from raffed.methods.ifca import (
    ClusterBank,
    ClusterMeans,
    ClusterModel,
    ClusterModels,
    SmallestLoss,
    bank_of,
    first_models,
    ifca,
)
from tests.quadratics import quadratics
from tests.tiny import (
    EVERYBODY,
    PLAIN,
    Tiny,
    bare_context,
    clients,
    network,
    of_kind,
    point,
    same_bits,
    server_context,
)

# IFCA: the choice by the smallest loss, means of clusters, first models that differ, and bytes.

ONE = Params({"head.w": torch.ones(1)}).clone()


def chosen(tiny: Tiny) -> list[int]:
    told = [tiny.last[client].upload.shares for client in sorted(tiny.last)]
    assert all(one is not None and sorted(one.tolist())[-2:] in ([1.0], [0.0, 1.0]) for one in told)
    return [int(one.argmax()) for one in told if one is not None]


@pytest.mark.parametrize(("losses", "wanted"), [([0.3, 0.2], 1), ([0.5, 0.9], 0), ([0.2, 0.2], 0)])
def test_a_client_chooses_the_smallest_loss_and_of_equals_the_first(
    losses: list[float], wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(2)."""
    found = iter(losses)
    monkeypatch.setattr("raffed.methods.ifca.mean_loss", lambda k, state: next(found))
    tiny = Tiny(ifca(2))
    sent = tiny.server.broadcast().slots["opening"]
    context = bare_context(start=State(tiny.server.w, tiny.server.b), server=sent)
    assert SmallestLoss(2, "all", 0).begin(context).cluster == wanted


@pytest.mark.parametrize(("sizes", "wanted"), [((1, 1, 1), [2.0, 11.0]), ((1, 1, 3), [2.5, 11.0])])
def test_models_are_the_means_of_their_clients(sizes: tuple[int, ...], wanted: list[float]) -> None:
    """(2): uploads 11 of cluster 1, and 1 and 3 of cluster 0. Nobody is in cluster 2."""
    fold, point = UploadAccumulator(), Params({"head.w": torch.zeros(1)}).clone()
    for client, (value, cluster, n) in enumerate(zip((11.0, 1.0, 3.0), (1, 0, 0), sizes, strict=True)):
        upload = Upload(None, point + ONE * value, Params({}), {}, shares=torch.eye(3)[cluster])
        fold.add(client, n / sum(sizes), upload, "test")
    mean, b, received = fold.finish(ServerState(0, point, Params({}), {}))
    held = [ClusterModel(point + ONE * x, Params({})) for x in (0.0, 10.0, 0.3)]
    k = server_context(received=received, b=b, sent_b=b)
    own, w = ClusterMeans(3, "head", 0).step(bank_of(held), held[0].w, mean, k)
    others = [own.models.models[number].w for number in ("1", "2")]
    assert [float(one["head.w"]) for one in (w, others[0])] == wanted
    assert same_bits(others[1], held[2].w)


@pytest.mark.parametrize("norm", [False, True])
def test_clusters_without_clients_keep_weights_and_statistics_over_rounds(norm: bool) -> None:
    """(4), the first of which is the server's own."""
    tiny = Tiny(ifca(5), net=network(norm))
    initial = tiny.server
    tiny.step(EVERYBODY)
    empty = sorted({0, 1, 2, 3, 4} - set(chosen(tiny)))
    first = first_models(initial.w, 5, 0, tiny.seed)
    assert empty
    for number in empty:
        if number == 0:
            assert same_bits([tiny.server.w, tiny.server.b], [initial.w, initial.b])
            continue
        held = models(tiny)[str(number)]
        assert same_bits([held.w, held.b], [first[number - 1], initial.b])


def models(tiny: Tiny) -> dict[str, Any]:
    return of_kind(tiny.server.broadcast().slots["opening"], ClusterModels).models


@pytest.mark.parametrize("weighting", ["clients", "samples"])
@pytest.mark.parametrize("norm", [False, True])
def test_one_cluster_is_fedavg_bit_for_bit(norm: bool, weighting: Weighting) -> None:
    """(1)."""
    mine = Tiny(ifca(1, weighting), net=network(norm)).run(3)
    plain = Tiny(Method("Plain", mean=Mean(weighting)), net=network(norm)).run(3)
    assert same_bits([mine.server.w, mine.server.b], [plain.server.w, plain.server.b])


@pytest.mark.parametrize("share", ["all", "head"])
def test_clients_start_from_the_model_that_they_chose(share: Any) -> None:
    tiny = Tiny(ifca(3, share=share), net=network(True)).run(2, EVERYBODY)
    held, plain = models(tiny), tiny.server.w
    tiny.step(EVERYBODY)
    for client, cluster in enumerate(chosen(tiny)):
        mine = tiny.last[client].views["opening"].start.w
        wanted = plain.joined(held[str(cluster)].w, plain.names) if cluster else plain
        assert same_bits(mine, wanted)
        names = held["1"].w.names
        assert set(names) == {n for n in plain.names if share == "all" or n.startswith("head.")}


def test_the_choice_is_that_of_the_cross_entropy_in_evaluation_mode() -> None:
    tiny = Tiny(ifca(3), net=network(True)).run(2, EVERYBODY)
    held, begun = models(tiny), tiny.server
    tiny.step(EVERYBODY)
    wanted = []
    for data in tiny.data:
        states = [State(begun.w, begun.b), *(State(held[j].w, held[j].b) for j in ("1", "2"))]
        logits = [tiny.net.apply(one, data.x)[0] for one in states]
        losses = [float(torch.nn.functional.cross_entropy(one, data.y)) for one in logits]
        wanted.append(losses.index(min(losses)))
    assert chosen(tiny) == wanted


def test_two_groups_with_opposite_labels_keep_their_models_and_train_as_two_federations() -> None:
    """(3): clients 2 and 3 have the labels of 0 and 1 exchanged. Each model begins a little on one side."""
    base = clients(((0, 1),) * 4, (10, 10, 10, 10))
    data = [ClientData(one.x, one.y if i < 2 else 1 - one.y, one.class_counts) for i, one in enumerate(base)]
    uniform, groups = Method("Plain", mean=Mean("clients")), ((0, 1), (2, 3))
    plain = [Tiny(uniform, data=data).run(1, group) for group in groups]
    bank = ClusterModels({"1": ClusterModel(plain[1].server.w, plain[1].server.b)})
    tiny = Tiny(ifca(2), data=data)
    tiny.server = plain[0].server.replace(slots={"opening": bank, "server": ClusterBank(bank)})
    for _ in range(4):
        tiny.step(EVERYBODY)
        assert chosen(tiny) == [0, 0, 1, 1]
        for one, group in zip(plain, groups, strict=True):
            one.step(group)
        assert same_bits([tiny.server.w, models(tiny)["1"].w], [one.server.w for one in plain])


def test_first_models_have_the_same_numbers_in_another_order_and_depend_on_seed_and_redraw() -> None:
    w = network(True).initial.w
    found = first_models(w, 4, 0, 7)
    for one in found:
        assert all(torch.equal(one[n].flatten().sort()[0], w[n].flatten().sort()[0]) for n in w.names)
    kinds = [w, *found, *first_models(w, 2, 1, 7), *first_models(w, 2, 0, 8)]
    assert len({tuple(one["body.fc.weight"].flatten().tolist()) for one in kinds}) == 6
    assert same_bits(found, first_models(w, 4, 0, 7))
    assert same_bits(redrawn(w, seeds.generator(7, "models", 0, 2)), found[1])


def test_the_chosen_model_is_scored_before_training_and_there_is_no_global_one() -> None:
    tiny = Tiny(ifca(), net=network(True), local=PLAIN).run(2, EVERYBODY)
    done = tiny.last[1]
    assert same_bits(done.personal_state(tiny.method), done.views["opening"].start)
    assert not tiny.method.has_global
    assert fedavg().has_global


# FedFew: the weights of clients and models, models that are trained at once, and what is sent and scored.

UNIFORM = Method("Plain", mean=Mean("clients"))
LOSSES = [[0.2, 0.4], [0.5, 0.1]]


def weights(losses: list[list[float]], mu: float) -> torch.Tensor:
    return few_weights(torch.tensor(losses, dtype=torch.float64), mu)


def bank(tiny: Tiny) -> ClusterModels:
    return of_kind(tiny.server.broadcast().slots["solver"], ClusterModels)


def told(tiny: Tiny, client: int) -> FewTrained:
    return of_kind(tiny.last[client].upload.slots["personal"], FewTrained)


def test_one_model_weighs_the_client_with_the_larger_loss_more() -> None:
    """(1)."""
    found = weights([[0.3], [0.7]], 0.1)
    torch.testing.assert_close(found[:, 0], torch.tensor([0.0179862, 0.9820138]).double(), rtol=0, atol=1e-7)


def test_two_models_have_the_worked_weights() -> None:
    """(2): α times w."""
    w = torch.tensor([[0.8807971, 0.1192029], [0.0179862, 0.9820138]], dtype=torch.float64)
    alpha = torch.tensor([0.7091423, 0.2908577], dtype=torch.float64)
    found = weights(LOSSES, 0.1)
    torch.testing.assert_close(found, alpha[:, None] * w, rtol=0, atol=1e-7)
    assert found.sum(0).tolist() == pytest.approx([0.6298419, 0.3701581], abs=1e-7)


@pytest.mark.parametrize(
    ("n", "alpha", "ends"),
    [(None, None, [0.6403047, 10.4867208]), (5, [0.5777799, 0.4222201], None)],
)
def test_a_step_of_the_server_has_the_worked_models(
    n: int | None, alpha: list[float] | None, ends: list[float] | None
) -> None:
    """(2): θ = (0, 10), clients' (1, 9) and (3, 12); p = ½ changes α."""
    sent = [
        Upload(
            n,
            point(a),
            Params({}),
            {
                "personal": FewTrained(
                    ClusterModels({"1": ClusterModel(point(b), Params({}))}), torch.tensor(losses)
                )
            },
        )
        for (a, b), losses in zip(((1.0, 9.0), (3.0, 12.0)), LOSSES, strict=True)
    ]
    own = ClusterBank(ClusterModels({"1": ClusterModel(point(10.0), Params({}))}))
    rule, k = TchebycheffSet(2, 0.1), server_context()
    got = {"server": received(sent)}
    after, w = rule.step(own, point(0.0), point(2.0), replace(k, received=got))
    found = [float(w["w"]), float(after.models.models["1"].w["w"])]
    if ends is not None:
        assert found == pytest.approx(ends, abs=1e-6)
    if alpha is not None:  # the α of halved losses; θ_0 moves by α_1 w_11 · 1 + α_2 w_21 · 3
        halved = weights([[one / 2 for one in row] for row in LOSSES], 0.1)
        assert halved.sum(1).tolist() == pytest.approx(alpha, abs=1e-7)
        wanted = [float(halved[:, 0] @ torch.tensor([1.0, 3.0]).double())]
        wanted.append(10.0 + float(halved[:, 1] @ torch.tensor([-1.0, 2.0]).double()))
        assert found == pytest.approx(wanted, abs=1e-6)


def received(sent: list[Upload]) -> Received:
    return Received(len(sent), each=tuple(sent), clients=tuple(range(len(sent))))


def test_a_large_mu_weighs_all_clients_and_models_alike() -> None:
    """(3)."""
    found = weights([[0.2, 0.4, 3.0], [0.5, 0.1, 9.0]], 1e9)
    torch.testing.assert_close(found, torch.full((2, 3), 1 / 6).double(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("norm", [False, True])
def test_one_model_and_a_large_mu_are_fedavg_by_clients(norm: bool) -> None:
    """(1)."""
    mine, plain = (Tiny(one, net=network(norm)).run(3, EVERYBODY) for one in (fedfew(1, 1e9), UNIFORM))
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-6)
    torch.testing.assert_close(mine.server.b.flat, plain.server.b.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cohort", [False, True])
def test_each_model_is_trained_as_if_it_were_the_only_one(cohort: bool) -> None:
    """With momentum, weight decay and BatchNorm: the K trained models are those of K runs of FedAvg."""
    local = replace(PLAIN, momentum=0.9, weight_decay=0.01, epochs=2)
    tiny = Tiny(fedfew(3), net=network(True), local=local, cohort=cohort).run(2, EVERYBODY)
    held, w, b = bank(tiny), tiny.server.w, tiny.server.b
    tiny.step(EVERYBODY)
    starts = [State(w, b), *(State(held.models[j].w, held.models[j].b) for j in ("1", "2"))]
    plain = Tiny(UNIFORM, net=network(True), local=local)
    for client in EVERYBODY:
        sent = tiny.last[client].upload
        found = [State(sent.w, sent.b), *(State(m.w, m.b) for m in told(tiny, client).models.models.values())]
        for one, start in zip(found, starts, strict=True):
            alone = plain.visit(client, broadcast=Broadcast(2, start.w, start.b, {})).trained
            torch.testing.assert_close(one.w.flat, alone.w.flat, rtol=0, atol=1e-5)  # two differ by 0.6
            torch.testing.assert_close(one.b.flat, alone.b.flat, rtol=0, atol=1e-5)


def test_losses_are_those_of_the_trained_models_and_the_smallest_is_scored() -> None:
    tiny = Tiny(fedfew(3), net=network(True), local=PLAIN, seed=7).run(2, EVERYBODY)
    chosen = set()
    for client, data in enumerate(tiny.data):
        done, sent = tiny.last[client], told(tiny, client)
        models = [done.trained, *(State(m.w, m.b) for m in sent.models.models.values())]
        losses = [float(cross_entropy(tiny.net.apply(one, data.x)[0], data.y)) for one in models]
        assert sent.losses.tolist() == pytest.approx(losses, abs=1e-6)
        best = losses.index(min(losses))
        assert same_bits(done.personal_state(tiny.method), models[best])
        chosen.add(best)
    assert chosen - {0}
    assert not tiny.method.has_global


def test_equal_first_models_stay_equal_and_are_refused() -> None:
    """(4)."""
    tiny = Tiny(fedfew(2), net=network(True))
    same = ClusterModels({"1": ClusterModel(tiny.server.w, tiny.server.b)})
    tiny.server = tiny.server.replace(slots={"solver": same, "server": ClusterBank(same)})
    tiny.run(3, EVERYBODY)
    held = bank(tiny).models["1"]
    assert same_bits([held.w, held.b], [tiny.server.w, tiny.server.b])
    with pytest.raises(UsageError, match="first models are equal"):
        quadratics(fedfew(2), lr=0.1, steps=1)  # begins at 0


def test_samples_leave_the_client_only_if_losses_are_weighted_by_them() -> None:
    none, samples = (Tiny(fedfew(loss_weight=one)).visit(1).upload for one in ("none", "samples"))  # type: ignore[arg-type]
    assert none.n is None
    assert samples.n == Tiny(fedfew()).data[1].n
    assert none.nbytes() + 4 == samples.nbytes()


def test_between_rounds_a_client_trains_the_newest_models_and_keeps_nothing() -> None:
    tiny = Tiny(fedfew(2), net=network(True)).run(1, EVERYBODY)
    assert BestOfFew.between == "round"
    assert not tiny.client_states or all(one.empty for one in tiny.client_states.values())

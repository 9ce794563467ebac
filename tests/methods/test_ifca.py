"""IFCA: the choice by the smallest loss, means of clusters, first models that differ, and bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raffed.core import seeds
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import ClientData
from raffed.core.messages import ServerState, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State, redrawn
from raffed.core.server import Mean
from raffed.methods.fedavg import fedavg
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
from tests.golden.regenerate import B, P
from tests.tiny import (
    EVERYBODY,
    PLAIN,
    Tiny,
    bare_context,
    clients,
    network,
    of_kind,
    same_bits,
    server_context,
)

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


def test_bytes_are_k_models_down_and_one_model_and_k_shares_up() -> None:
    """(5)."""
    tiny = Tiny(ifca(3), net=network(True)).run(1, EVERYBODY)
    assert tiny.last[1].upload.nbytes() == 4 * (P + B + 3)
    assert tiny.server.broadcast().nbytes() == 3 * 4 * (P + B)


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

"""FedFew: the weights of clients and models, models that are trained at once, and what is sent and scored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from raffed.core.context import Received
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.methods.fedfew import BestOfFew, FewTrained, TchebycheffSet, fedfew, few_weights
from raffed.methods.ifca import ClusterBank, ClusterModel, ClusterModels
from tests.golden.regenerate import B, P
from tests.quadratics import quadratics
from tests.tiny import EVERYBODY, PLAIN, Tiny, network, of_kind, point, same_bits, server_context

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
            torch.testing.assert_close(one.w.flat, alone.w.flat, rtol=0, atol=1e-6)
            torch.testing.assert_close(one.b.flat, alone.b.flat, rtol=0, atol=1e-6)


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


def test_bytes_are_k_models_in_both_directions_and_k_losses_up() -> None:
    tiny = Tiny(fedfew(4), net=network(True)).run(1, EVERYBODY)
    assert tiny.server.broadcast().nbytes() == 4 * 4 * (P + B)
    assert tiny.last[1].upload.nbytes() == 4 * (4 * (P + B) + 4)


def test_between_rounds_a_client_trains_the_newest_models_and_keeps_nothing() -> None:
    tiny = Tiny(fedfew(2), net=network(True)).run(1, EVERYBODY)
    assert BestOfFew.between == "round"
    assert not tiny.client_states or all(one.empty for one in tiny.client_states.values())

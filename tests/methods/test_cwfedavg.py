"""cwFedAvg: class models, mixtures by the norms of heads, and the regulariser of the head."""

from __future__ import annotations

import pytest
import torch

from raffed.core.context import Received
from raffed.core.messages import Broadcast, Upload
from raffed.core.params import Params
from raffed.core.server import Mixtures, replied
from raffed.methods.cwfedavg import (
    ClassWiseMean,
    WeightDistribution,
    class_weights,
    cwfedavg,
    norm_shares,
)
from raffed.methods.fedavg import fedavg
from raffed.methods.solo import solo
from tests.tiny import (
    EVERYBODY,
    Tiny,
    bare_context,
    clients,
    forward,
    leaves,
    network,
    same_bits,
    server_context,
)

HEADS = torch.tensor([[[3.0, 4], [0, 1]], [[0, 1], [0, 2]], [[1, 0], [1, 0]]], dtype=torch.float64)
SHARES = [[0.8333333, 0.1666667], [0.3333333, 0.6666667], [0.5, 0.5]]
MIXED = [2.6985539, 2.8587319, 2.8053393]


def test_shares_are_those_of_the_rows_norms() -> None:
    """(1): norms 5 and 1; 1 and 2; 1 and 1."""
    found = torch.stack([norm_shares(head) for head in HEADS])
    torch.testing.assert_close(found, torch.tensor(SHARES, dtype=torch.float64), rtol=0, atol=1e-7)


def test_class_weights_are_those_of_the_worked_example() -> None:
    """(1), p = (.2, .3, .5)."""
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    q = class_weights(p, torch.tensor(SHARES, dtype=torch.float64))
    wanted = [[0.3225806, 0.1935484, 0.4838710], [0.0689655, 0.4137931, 0.5172414]]
    torch.testing.assert_close(q, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-6)


def test_a_class_without_a_share_has_weights_0() -> None:
    q = class_weights(torch.tensor([1.0]), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert q.tolist() == [[1.0], [0.0]]


def uploads(body: tuple[float, ...], sizes: tuple[int, ...]) -> tuple[Upload, ...]:
    return tuple(
        Upload(n, Params({"body.w": torch.tensor([x]), "head.weight": head.float()}).clone(), Params({}), {})
        for x, n, head in zip(body, sizes, HEADS, strict=True)
    )


def mixtures(part: str = "all") -> tuple[Mixtures, Params]:
    """After a round of three clients with scalar bodies 1, 2, 4 and p = (.2, .3, .5)."""
    sent = uploads((1.0, 2.0, 4.0), (2, 3, 5))
    k = server_context(received={"server": Received(3, None, sent, (0, 1, 3))})
    mean = Params({"body.w": torch.tensor([2.8]), "head.weight": torch.zeros(2, 2)}).clone()
    return ClassWiseMean(part).step(None, mean, mean, k)  # type: ignore[arg-type]


def body(table: Mixtures, w: Params, client: int) -> float:
    return float(replied(Broadcast(1, w, Params({}), {"server": table}), client).w["body.w"])


def test_clients_download_the_mixtures_of_the_worked_example() -> None:
    """(1): class models 2.6451613 and 2.9655172; the mean by p is 2.8, which is FedAvg's."""
    table, w = mixtures()
    assert table.rows[:, 0].tolist() == pytest.approx([2.6451613, 2.9655172], abs=1e-6)
    found = [body(table, w, client) for client in (0, 1, 3)]
    assert found == pytest.approx(MIXED, abs=1e-6)
    assert sum(p * x for p, x in zip((0.2, 0.3, 0.5), found, strict=True)) == pytest.approx(2.8, abs=1e-6)
    assert body(table, w, 2) == pytest.approx(2.8)  # it never took part


def test_with_the_head_alone_the_body_is_fedavg_s_mean() -> None:
    table, w = mixtures("head")
    assert [body(table, w, client) for client in (0, 1, 3)] == pytest.approx([2.8] * 3)
    heads = [replied(Broadcast(1, w, Params({}), {"server": table}), c).w["head.weight"] for c in (0, 1)]
    assert not torch.equal(*heads)


def regulariser(weight: torch.Tensor, counts: list[int]) -> torch.Tensor:
    k = bare_context(class_counts=torch.tensor(counts))
    f = forward(torch.zeros(1, 2), torch.zeros(1), w=Params({"head.weight": weight}))
    return WeightDistribution(10.0).loss(f, k)


@pytest.mark.parametrize(("counts", "value"), [([8, 2], 0.2357023), ([1, 1], 2.3570226)])
def test_the_regulariser_of_the_worked_example(counts: list[int], value: float) -> None:
    """(4)."""
    assert float(regulariser(HEADS[0], counts)) == pytest.approx(value, abs=1e-6)


def test_its_gradient_is_that_of_the_worked_example_and_finite_where_the_shares_agree() -> None:
    """(4), (6): the norm has no gradient at 0, where it would be NaN."""
    for counts, wanted in (([1, 1], [[0.1178511, 0.1571348], [0.0, -0.9820928]]), ([5, 1], None)):
        live = HEADS[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(regulariser(live, counts), [live])
        assert torch.isfinite(slope).all()
        if wanted is not None:
            torch.testing.assert_close(slope, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-5)


def test_a_row_of_zeros_has_a_gradient() -> None:
    live = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(regulariser(live, [1, 1]), [live])
    assert torch.isfinite(slope).all()


def test_equal_shares_for_all_are_fedavg(monkeypatch: pytest.MonkeyPatch) -> None:
    """(2)."""
    equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    monkeypatch.setattr("raffed.methods.cwfedavg.shares_of", lambda upload: equal)
    mine, plain = (Tiny(one, net=network(True)).run(2, EVERYBODY) for one in (cwfedavg(wdr=0.0), fedavg()))
    for client in EVERYBODY:
        one, other = mine.last[client].trained, plain.last[client].trained
        torch.testing.assert_close(one.w.flat, other.w.flat, rtol=0, atol=1e-6)


def test_one_hot_shares_of_different_classes_are_local_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """(3): three clients and three classes."""
    given = iter(torch.eye(3, dtype=torch.float64).repeat(3, 1))
    monkeypatch.setattr("raffed.methods.cwfedavg.shares_of", lambda upload: next(given))
    mine, alone = (Tiny(one).run(3, (0, 1, 2)) for one in (cwfedavg(wdr=0.0), solo()))
    for client in (0, 1, 2):
        one, other = mine.last[client].trained.w.flat, alone.last[client].trained.w.flat
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_one_client_is_fedavg_and_without_the_regulariser_there_is_no_term() -> None:
    """(5)."""
    data = [clients()[3]]
    mine, plain = (Tiny(one, data=data).run(3, [0]) for one in (cwfedavg(wdr=0.0), fedavg()))
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-7)
    assert cwfedavg(wdr=0.0).terms == ()


@pytest.mark.parametrize("shares", ["norms", "counts"])
def test_the_mean_of_all_mixtures_by_samples_is_the_server_s_model(shares: str) -> None:
    """p·M = p, so that the global model has a meaning."""
    tiny = Tiny(cwfedavg(shares=shares), net=network(True)).run(2, EVERYBODY)  # type: ignore[arg-type]
    sizes = torch.tensor([float(data.n) for data in tiny.data])
    found = torch.stack([tiny.visit(client).start.w.flat for client in EVERYBODY])
    torch.testing.assert_close((sizes / sizes.sum()) @ found, tiny.server.w.flat, rtol=0, atol=1e-6)
    assert tiny.method.has_global


def test_the_downloaded_mixture_is_scored_and_the_trained_model_is_sent() -> None:
    tiny = Tiny(cwfedavg(), net=network(True)).run(2, EVERYBODY)
    done = tiny.last[1]
    assert same_bits(done.personal_state(tiny.method), done.start)
    assert same_bits(done.upload.w, done.trained.w)


def test_class_shares_leave_the_client_only_if_they_are_asked_for() -> None:
    norms, counts = (Tiny(cwfedavg(shares=one)).visit(1).upload for one in ("norms", "counts"))  # type: ignore[arg-type]
    assert norms.slots == {}
    assert [t.tolist() for t in leaves(counts.slots)] == [[0.0, 0.5, 0.5]]

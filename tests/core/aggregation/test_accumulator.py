"""Folding uploads: what an actor returns for its clients, and how the driver joins it, for any order and
grouping.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.core.aggregation.exact_sums import Mask
from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator
from raffed.core.context import Received
from raffed.core.messages import ServerState, Summable, Upload, Wire
from raffed.core.params import Params, State
from raffed.errors import NumericsError, UsageError
from tests.tiny import of_kind, same_bits


class Told(Summable):
    x: Tensor


class Single(Wire):
    who: int


def upload(client: int) -> Upload:
    g = torch.Generator().manual_seed(client)
    w = Params({"w": torch.randn(5, generator=g)}).clone()
    b = Params({"b": torch.randn(2, generator=g)}).clone()
    return Upload(3, w, b, {"sum": Told(torch.randn(3, generator=g)), "each": Single(client)})


SERVER = ServerState(0, upload(0).w, upload(0).b, {})
WEIGHTS = [0.1, 0.2, 0.3, 0.15, 0.25]


def folded(order: list[int], cuts: list[int]) -> UploadAccumulator:
    whole = UploadAccumulator()
    for chunk in np.split(np.array(order), sorted(cuts)):
        actor = UploadAccumulator()
        for client in chunk.tolist():
            actor.add(client, WEIGHTS[client], upload(client), "test")
        whole.merge(pickle.loads(pickle.dumps(actor.export())))
    return whole


@given(st.permutations(range(5)), st.lists(st.integers(0, 5), max_size=4))
def test_any_order_and_grouping_of_clients_ends_in_the_same_bits(order: list[int], cuts: list[int]) -> None:
    one, two = folded(list(range(5)), []).finish(SERVER), folded(order, cuts).finish(SERVER)
    assert same_bits(one[0], two[0])
    assert same_bits(one[1], two[1])
    assert same_bits(one[2]["sum"].sum, two[2]["sum"].sum)
    assert [w.who for w in two[2]["each"].each] == [0, 1, 2, 3, 4]  # type: ignore[attr-defined]
    assert two[2]["sum"].count == two[2]["each"].count == 5


def test_weights_and_buffers_are_averaged_by_p_and_messages_are_added_plainly() -> None:
    w, b, received = folded([0, 1, 2, 3, 4], [2]).finish(SERVER)
    mean = sum(p * upload(i).w["w"].double() for i, p in enumerate(WEIGHTS))
    mean_b = sum(p * upload(i).b["b"].double() for i, p in enumerate(WEIGHTS))
    total = sum(upload(i).slots["sum"].x.double() for i in range(5))  # type: ignore[attr-defined]
    torch.testing.assert_close(w["w"].double(), mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(b["b"].double(), mean_b, rtol=1e-6, atol=1e-7)
    got = of_kind(received["sum"].sum, Told)
    torch.testing.assert_close(got.x.double(), total, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "where"), [("w", "tensor w"), ("b", "buffers, tensor b")])
def test_a_diverged_client_is_named_with_its_round_and_tensor(kind: str, where: str) -> None:
    bad = upload(1)
    getattr(bad, kind)[kind][0] = float("nan")
    with pytest.raises(NumericsError, match=f"FedAvg, round 7, client 1, {where}"):
        UploadAccumulator().add(1, 1.0, bad, "FedAvg, round 7")


def shared(shares: list[list[float]], order: list[int], cuts: list[int], masked: bool = False) -> PartialSum:
    """The sums of uploads with shares of columns, added up by actors."""
    whole = UploadAccumulator()
    for chunk in np.split(np.array(order), sorted(cuts)):
        actor, clients = UploadAccumulator(), chunk.tolist()
        plain = [
            upload(client).replace(slots={}, shares=torch.tensor(shares[client], dtype=torch.float64))
            for client in clients
        ]
        if clients:
            actor.add_all(clients, [WEIGHTS[client] for client in clients], plain, "test")
        for client in clients if masked else ():
            actor.add_mask(Mask(3, 0, client, range(5)))
        whole.merge(pickle.loads(pickle.dumps(actor.export())))
    return whole.export()


def finished(partial: PartialSum) -> tuple[Params, Params, Received]:
    whole = UploadAccumulator()
    whole.merge(partial)
    w, b, received = whole.finish(SERVER)
    return w, b, received["server"]


CHOSEN = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
PARTLY = [[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.9, 0.1], [1 / 3, 1 / 3, 1 / 3], [0.05, 0.15, 0.8]]


def test_one_column_is_the_mean_bit_for_bit_and_costs_no_sum() -> None:
    partial = shared([[1.0]] * 5, [0, 1, 2, 3, 4], [2])
    w, b, got = finished(partial)
    plain = folded([0, 1, 2, 3, 4], []).finish(SERVER)
    assert partial.columns == []
    assert same_bits([*got.columns], [State(*plain[:2])])
    assert same_bits([w, b], [*plain[:2]])
    assert got.totals is not None
    assert got.totals.tolist() == [1.0]


@pytest.mark.parametrize("shares", [CHOSEN, PARTLY])
def test_columns_add_up_to_the_sum_of_all_uploads_exactly(shares: list[list[float]]) -> None:
    """As integers. Where a client has one column alone, this column is the sum of its clients alone."""
    partial = shared(shares, [0, 1, 2, 3, 4], [1, 3])
    assert partial.w is not None
    ends = [*(w for w, _ in partial.columns), partial.w]
    columns = np.diff([np.zeros_like(partial.w), *ends], axis=0)
    assert (columns.sum(0) == folded([0, 1, 2, 3, 4], []).export().w).all()
    for number in range(3):
        alone = UploadAccumulator()
        for client, row in enumerate(shares):
            alone.add(client, WEIGHTS[client] * row[number], upload(client), "test")
        apart = 0 if shares is CHOSEN else 8  # of 5 clients, rounded at both ends of a column and alone
        assert abs(columns[number] - alone.export().w).max() <= apart


def test_a_column_is_a_weighted_mean_and_none_if_nobody_has_a_share_of_it() -> None:
    a, p = torch.tensor(PARTLY, dtype=torch.float64), torch.tensor(WEIGHTS, dtype=torch.float64)
    _, _, got = finished(shared(PARTLY, [0, 1, 2, 3, 4], []))
    assert got.totals is not None
    torch.testing.assert_close(got.totals, p @ a, rtol=0, atol=1e-12)
    for number, mean in enumerate(got.columns):
        share = p * a[:, number] / (p @ a)[number]
        for part, names in (("w", "w"), ("b", "b")):
            wanted = sum(float(share[i]) * getattr(upload(i), part)[names].double() for i in range(5))
            torch.testing.assert_close(getattr(mean, part)[names].double(), wanted, rtol=1e-6, atol=2e-7)
    none = finished(shared(CHOSEN, [0, 1, 2, 3, 4], []))[2]
    assert [mean is None for mean in none.columns] == [False, False, True]
    assert none.count == 5


@given(st.permutations(range(5)), st.lists(st.integers(0, 5), max_size=4), st.booleans())
def test_columns_have_the_same_bits_for_any_order_and_grouping_and_under_masks(
    order: list[int], cuts: list[int], masked: bool
) -> None:
    one, two = finished(shared(PARTLY, list(range(5)), [])), finished(shared(PARTLY, order, cuts, masked))
    assert same_bits([*one[:2], *one[2].columns, one[2].totals], [*two[:2], *two[2].columns, two[2].totals])


def test_a_masked_column_tells_nothing() -> None:
    (one, _), *_ = shared(CHOSEN, [0], [], masked=True).columns
    assert one is not None
    assert (abs(one) > 2**50).any()


@pytest.mark.parametrize(
    "wrong", [[0.5, 0.4, 0.0], [1.5, -0.5, 0.0], [float("nan"), 0.5, 0.5], [2.0**100, 0, 0]]
)
def test_shares_that_are_none_are_refused(wrong: list[float]) -> None:
    with pytest.raises(
        NumericsError, match=r"client 1: the shares of its columns must be at least 0 and add up"
    ):
        shared([CHOSEN[0], wrong, *CHOSEN[2:]], [0, 1, 2, 3, 4], [])


def test_clients_have_shares_of_equally_many_columns() -> None:
    with pytest.raises(UsageError, match="all clients must have shares of equally many columns"):
        shared([[1.0], *CHOSEN[1:]], [0, 1, 2, 3, 4], [])
    with pytest.raises(UsageError, match="all clients must have shares of equally many columns"):
        UploadAccumulator().add_all(
            [0, 1], [0.5, 0.5], [upload(0), upload(1).replace(shares=torch.ones(1))], "x"
        )

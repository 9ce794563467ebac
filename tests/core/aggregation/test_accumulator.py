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

from raffed.core.aggregation.exact_sums import UploadAccumulator
from raffed.core.messages import ServerState, Summable, Upload, Wire
from raffed.core.params import Params
from raffed.errors import NumericsError
from tests.tiny import same_bits


class Told(Summable):
    x: Tensor


class Single(Wire):
    who: int


def upload(client: int) -> Upload:
    g = torch.Generator().manual_seed(client)
    w, b = (
        Params({"w": torch.randn(5, generator=g)}).clone(),
        Params({"b": torch.randn(2, generator=g)}).clone(),
    )
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
    got = received["sum"].sum
    assert isinstance(got, Told)
    torch.testing.assert_close(got.x.double(), total, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "where"), [("w", "tensor w"), ("b", "buffers, tensor b")])
def test_a_diverged_client_is_named_with_its_round_and_tensor(kind: str, where: str) -> None:
    bad = upload(1)
    getattr(bad, kind)[kind][0] = float("nan")
    with pytest.raises(NumericsError, match=f"FedAvg, round 7, client 1, {where}"):
        UploadAccumulator().add(1, 1.0, bad, "FedAvg, round 7")

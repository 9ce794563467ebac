"""FedNH (Dai et al., AAAI 2023): a cosine head whose rows move towards the clients' class means."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raffed.core.context import Received, Spec
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.server import Mean
from raffed.methods.common import BODY_ONLY, HeldSums, KeepHead
from raffed.methods.fednh import ClassDirections, MovingPrototypes, fednh
from tests.tiny import Tiny, bare_context, network, of_kind, same_bits, server_context


def sent(counts: tuple[int, ...], features: dict[int, tuple[float, ...]], unit: str = "client") -> HeldSums:
    """What a client sends whose features of a class are all the same."""
    y = torch.tensor([c for c, n in enumerate(counts) for _ in range(n)])
    z = torch.tensor([features[int(c)] for c in y])
    k = bare_context(
        class_counts=torch.tensor(counts),
        spec=Spec(3, 3, 2, 1),
        features=lambda _: iter([(z, y)]),
    )
    return of_kind(ClassDirections(unit).finish(k)[1], HeldSums)


def rows_after(one: HeldSums, other: HeldSums, rho: float = 0.9) -> Tensor:
    told = HeldSums(one.total + other.total, one.count + other.count)
    k = server_context(received={"message": Received(2, told)})
    w = Params({"body.x": torch.zeros(1), "head.weight": torch.eye(3)})
    return MovingPrototypes(rho).step(None, w, w, k)[1]["head.weight"]


ONE = sent((3, 1, 0), {0: (0.6, 0.8, 0.0), 1: (0.0, 1.0, 0.0)})
OTHER = sent((1, 0, 0), {0: (1.0, 0.0, 0.0)})


def test_the_worked_example_has_the_sheet_s_rows() -> None:
    """proto₀ = unit(3 (.6, .8, 0) + (1, 0, 0)) = (.7592566, .6507914, 0)."""
    total = (ONE.total + OTHER.total)[0]
    torch.testing.assert_close(
        total / total.norm(), torch.tensor([0.7592566, 0.6507914, 0.0]), rtol=0, atol=1e-6
    )
    rows = rows_after(ONE, OTHER)
    torch.testing.assert_close(rows[0], torch.tensor([0.9977840, 0.0665367, 0.0]), rtol=0, atol=1e-6)
    torch.testing.assert_close(rows[1:], torch.eye(3)[1:], rtol=0, atol=1e-6)


def test_a_class_that_no_participant_holds_keeps_the_bits_of_its_row() -> None:
    assert torch.equal(rows_after(ONE, OTHER)[2], torch.eye(3)[2])


def test_the_length_of_features_changes_nothing() -> None:
    long = sent((3, 1, 0), {0: (6.0, 8.0, 0.0), 1: (0.0, 0.1, 0.0)})
    torch.testing.assert_close(long.total, ONE.total, rtol=1e-6, atol=1e-6)


def test_without_scaling_a_class_whose_features_disagree_counts_less() -> None:
    """Features (1, 0, 0) and (0, 1, 0) have a mean of length 1/√2, and two of them the sum (1, 1, 0)."""
    z, y = torch.eye(3)[:2], torch.tensor([0, 0])
    spec = Spec(3, 3, 2, 1)
    k = bare_context(class_counts=torch.tensor([2, 0, 0]), spec=spec, features=lambda _: iter([(z, y)]))
    lengths = []
    for unit in ("client", "none"):
        told = ClassDirections(unit).finish(k)[1]
        assert told is not None
        lengths.append(float(told.total[0].norm()))
    assert lengths == pytest.approx([2.0, 2**0.5])


def test_with_rho_1_it_is_the_frozen_orthogonal_head_bit_for_bit() -> None:
    frozen = Method(
        "FedUH",
        passes=BODY_ONLY,
        mean=Mean(by="clients"),
        server=KeepHead(),
        network=fednh().network,
    )
    mine, other = (Tiny(one, net=network(norm=True)).run(3) for one in (fednh(rho=1.0), frozen))
    assert same_bits(mine.server.w, other.server.w)
    assert same_bits(mine.server.b, other.server.b)


def test_rows_always_have_length_1_and_move() -> None:
    tiny = Tiny(fednh(rho=0.5), net=network(norm=True))
    start = tiny.server.w["head.weight"]
    torch.testing.assert_close(start @ start.T, torch.eye(3), rtol=0, atol=1e-6)
    for _ in range(3):
        tiny.step([0, 1])
        rows = tiny.server.w["head.weight"]
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(3), rtol=0, atol=1e-6)
    assert not torch.equal(rows, start)


def test_the_head_is_frozen_in_local_training() -> None:
    tiny = Tiny(fednh(), net=network()).run(2, [0, 1, 2, 3])
    done = tiny.visit(1)
    assert same_bits(done.trained.w["head.weight"], done.start.w["head.weight"])


def test_a_client_sends_the_rows_of_the_classes_that_it_holds() -> None:
    """Client 1 holds two classes of 5 features: 2 · (5 + 1) numbers beside the model."""
    tiny = Tiny(fednh(), net=network()).run(1, [0, 1, 2, 3])
    told = tiny.last[1].upload.slots["message"]
    assert sum(told.numbers().values()) == 2 * 6

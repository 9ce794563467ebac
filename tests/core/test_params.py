"""Points in weight space, records, and what may travel between client and server."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing.reduction
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ray.cloudpickle
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from raffed.core.messages import Broadcast, ClientState, Private, ServerState, Summable, Upload, Wire
from raffed.core.params import Params, Record, State
from raffed.errors import BoundaryError
from tests.tiny import same_bits, tree_stack

# Params: a point in weight space with two backings, one flat buffer or separate tensors, that behave alike.
# Frozen records: dataclasses that cannot be changed and pytree nodes that torch.func can stack.

SHAPES = {"body.w": (3, 4), "body.b": (3,), "head.s": (), "head.w": (5, 7)}


def loose(seed: int = 0) -> Params:
    g = torch.Generator().manual_seed(seed)
    return Params({name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()})


def agree(a: Params, b: Params) -> bool:
    return a.names == b.names and all(torch.equal(a[name], b[name]) for name in a.names)


@pytest.mark.parametrize(
    "equation",
    [
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * 0.3,
        lambda p, q: 0.3 * p,
        lambda p, q: p / 3.0,
        lambda p, q: -p,
        lambda p, q: p.zeros(),
        lambda p, q: p.where(torch.tensor(True), q),
        lambda p, q: p.where(torch.tensor(False), q),
        lambda p, q: (p - q) / 0.7 + q * torch.tensor(2.0),
        lambda p, q: p.clone(),
        lambda p, q: p.only(["head.w", "body.b"]),
    ],
)
def test_a_flat_and_a_loose_point_give_the_same_bits_in_every_equation(
    equation: Callable[[Params, Params], Params],
) -> None:
    p, q = loose(0), loose(1)
    wanted = equation(p, q)
    for left in (p, p.clone()):
        for right in (q, q.clone()):
            assert agree(equation(left, right), wanted)


@pytest.mark.parametrize("op", [operator.add, operator.sub])
def test_points_with_different_names_do_not_add_up(op: Callable[[Params, Params], Params]) -> None:
    p = loose()
    without = p.only(["body.w", "body.b", "head.s"])
    for a, b in ((p, without), (p.clone(), without), (without, p.clone())):
        with pytest.raises(ValueError, match=r"different names: head\.w"):
            op(a, b)


@pytest.mark.parametrize("op", [operator.add, operator.sub])
def test_points_of_another_order_add_up_by_name(op: Callable[[Params, Params], Params]) -> None:
    p = loose()
    reordered = Params({name: p[name] for name in reversed(p.names)})
    for a, b in ((p, reordered), (p.clone(), reordered.clone())):
        assert op(a, b).names == p.names
        assert torch.equal(op(a, b).flat, op(p, p).flat)


def test_pickling_keeps_every_bit_name_and_shape() -> None:
    p = loose()
    for one in (p, p.clone()):
        back = pickle.loads(pickle.dumps(one))
        assert agree(back, p)
        assert back.layout == p.clone().layout
    assert len(pickle.loads(pickle.dumps(Params({})))) == 0


def test_a_pickle_is_made_of_one_buffer() -> None:
    """What Ray shares without a copy: one out-of-band numpy buffer of layout.size floats, not one a
    tensor.
    """
    p, buffers = loose(), []
    pickle.dumps(p, protocol=5, buffer_callback=buffers.append)
    assert [len(b.raw()) for b in buffers] == [4 * p.layout.size]


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6))
def test_every_tensor_starts_on_a_64_byte_boundary_and_the_gaps_hold_zeros(counts: list[int]) -> None:
    tensors = {str(i): torch.full((n,), 7.0) for i, n in enumerate(counts)}
    p = Params(tensors).clone()
    assert all(4 * at % 64 == 0 for at in p.layout.offsets)
    assert p.flat.sum() == 7.0 * sum(counts)
    assert p.numel() == sum(counts)
    starts = [*p.layout.offsets, p.layout.size]
    assert all(a + n <= b for a, n, b in zip(starts, counts, starts[1:], strict=False))


def test_parts_are_own_copies_and_come_back_together_in_the_models_order() -> None:
    p = loose().clone()
    body, head = p.only(["body.w", "body.b"]), p.only(["head.s", "head.w"])
    assert body.flat.data_ptr() != p.flat.data_ptr()
    assert agree(head.joined(body, p.names), p)
    assert p.joined(Params({}), p.names) is p


@pytest.mark.parametrize("offset", range(0, 64, 4))
def test_a_point_that_arrives_lies_on_a_64_byte_boundary_wherever_its_message_put_it(offset: int) -> None:
    """A message has its arrays anywhere; kernels, and with them bits, may go by alignment."""
    sent = loose().clone()
    make, (names, shapes, array) = sent.__reduce__()
    room = np.zeros(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    there = room[start : start + array.nbytes].view(np.float32)
    there[:] = array
    there.flags.writeable = False
    got = make(names, shapes, there)
    assert got.flat.data_ptr() % 64 == 0
    assert same_bits(got, sent)
    assert (got.flat.data_ptr() == there.ctypes.data) == (offset == 0)  # a copy only where it must be


class Pair(Record):
    a: Tensor
    p: Params
    size: int = 2


def pair(value: float) -> Pair:
    return Pair(torch.tensor(value), Params({"w": torch.full((2,), value)}).clone())


def test_a_record_cannot_be_changed_but_a_copy_with_another_field_can_be_made() -> None:
    one = pair(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.size = 3  # type: ignore[misc]
    two = one.replace(size=3)
    assert (one.size, two.size) == (2, 3)
    assert two.a is one.a


def test_vmap_sees_the_tensors_inside_nested_records() -> None:
    """a + Σ w for a = 1, 2, 3 and w = (a, a): 3a."""
    stacked = tree_stack(
        [
            pair(1.0).replace(size=torch.tensor(0)),
            pair(2.0).replace(size=torch.tensor(0)),
            pair(3.0).replace(size=torch.tensor(0)),
        ]
    )
    sums = vmap(lambda one: one.a + one.p["w"].sum())(stacked)
    assert sums.tolist() == [3.0, 6.0, 9.0]


# The boundary between client and server: what may travel, what refuses to, and how it says so.


class Kept(Private):
    secret: Tensor


class Note(Wire):
    part: Any


class Counted(Summable):
    labels = ("tag",)

    tag: str
    mean: Tensor
    known: Tensor
    n: int


SECRET = Kept(torch.ones(2))
POINT = Params({"w": torch.ones(3)}).clone()


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (SECRET, r"Note\.part is a Kept"),
        ([SECRET], r"Note\.part is a list"),
        ((SECRET,), r"Note\.part is a tuple"),
        ({"slot": SECRET}, r"Note\.part\['slot'\] is a Kept: only a Wire may travel in a slot"),
        ({"slot": {"deeper": SECRET}}, r"Note\.part\['slot'\] is a dict"),
        ({"slot": torch.ones(1)}, r"Note\.part\['slot'\] is a Tensor"),
        (ClientState(POINT, POINT, {"x": SECRET}), r"Note\.part is a ClientState"),
        (lambda: 0, r"Note\.part is a function"),
        (torch.ones(2, requires_grad=True), r"Note\.part carries gradient history"),
        (torch.ones(2, requires_grad=True) * 2, r"Note\.part carries gradient history"),
        (Params({"w": torch.ones(2, requires_grad=True)}), r"Note\.part.*gradient history"),
        (State(POINT, Params({"b": torch.ones(2, requires_grad=True)})), r"Note\.part.*gradient history"),
    ],
)
def test_a_wire_refuses_what_may_not_travel_and_names_the_field(part: Any, named: str) -> None:
    with pytest.raises(BoundaryError, match=named):
        Note(part)


@pytest.mark.parametrize(
    "message", [lambda p: Upload(1, POINT, POINT, {"x": p}), lambda p: Broadcast(0, POINT, POINT, {"x": p})]
)
def test_swapping_what_finish_returns_is_caught_when_the_message_is_made(
    message: Callable[[Any], Wire],
) -> None:
    with pytest.raises(BoundaryError, match=r"(Upload|Broadcast)\.slots\['x'\] is a Kept"):
        message(SECRET)


@pytest.mark.parametrize(
    "send",
    [
        pickle.dumps,
        ray.cloudpickle.dumps,
        multiprocessing.reduction.ForkingPickler.dumps,
        copy.copy,
        copy.deepcopy,
    ],
)
@pytest.mark.parametrize(
    "carry",
    [
        lambda p: p,
        lambda p: [1, [p]],
        lambda p: {"a": {"b": (p,)}},
        lambda p: ClientState(POINT, POINT, {"x": p}),
        lambda p: ServerState(0, POINT, POINT, {"x": p}),
    ],
)
def test_a_private_record_cannot_be_pickled_or_copied_wherever_it_hides(
    send: Callable[[Any], Any], carry: Any
) -> None:
    thing = carry(SECRET)
    if send is copy.copy and isinstance(thing, list | dict):
        return  # a shallow copy of a container copies no record
    with pytest.raises(BoundaryError, match=r"(Kept|ClientState|ServerState) is private and cannot be sent"):
        send(thing)


def test_the_server_broadcasts_its_wires_and_keeps_its_privates() -> None:
    server = ServerState(3, POINT, POINT, {"open": Note(1), "own": SECRET})
    sent = server.broadcast()
    assert sent.round == 3
    assert list(sent.slots) == ["open"]
    pickle.dumps(sent)


def test_numbers_and_bytes_count_the_payload_and_not_the_labels() -> None:
    """mean 2·3 floats of 4 bytes, known 2 flags of 1 byte, n a number of 4; `tag` is a label, `round`
    another.
    """
    counted = Counted("round 7", torch.zeros(2, 3), torch.zeros(2, dtype=torch.bool), 5)
    assert counted.numbers() == {"mean": 6, "known": 2, "n": 1}
    assert counted.nbytes() == 24 + 2 + 4
    sent = Broadcast(7, POINT, Params({}), {"x": counted})
    assert sent.numbers() == {"w": 3, "b": 0, "slots.x.mean": 6, "slots.x.known": 2, "slots.x.n": 1}
    assert sent.nbytes() == 12 + 30
    assert Upload(None, POINT, Params({}), {}).nbytes() == 12
    assert Upload(9, POINT, Params({}), {}).nbytes() == 16

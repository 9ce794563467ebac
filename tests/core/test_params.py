"""Params: a point in weight space with two backings, one flat buffer or separate tensors, that behave alike.
Frozen records: dataclasses that cannot be changed and pytree nodes that torch.func can stack.
"""

from __future__ import annotations

import dataclasses
import operator
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from raffed.core.params import Params, Record
from tests.tiny import same_bits, tree_stack

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

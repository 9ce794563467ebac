"""Frozen records: dataclasses that cannot be changed and pytree nodes that torch.func can stack."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from raffed.core.params import Params, Record
from tests.tiny import bare_context, same_bits, tree_stack


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


def test_flattening_and_unflattening_gives_the_same_record() -> None:
    one = pair(1.5)
    values, shape = pytree.tree_flatten(one)
    back = pytree.tree_unflatten(values, shape)
    assert isinstance(back, Pair)
    assert isinstance(back.p, Params)
    assert same_bits(one, back)
    assert back.size == 2


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


def test_a_context_is_copied_with_other_fields_and_with_no_others() -> None:
    one = bare_context(steps=3)
    other = one.replace(steps=4)
    assert (one.steps, other.steps) == (3, 4)
    same = {field.name for field in dataclasses.fields(one)} - {"steps"}
    assert all(getattr(other, name) is getattr(one, name) for name in same)
    with pytest.raises(TypeError, match=r"Context has no field step$"):
        one.replace(step=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        other.steps = 5  # type: ignore[misc]

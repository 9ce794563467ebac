"""Stack the records of k clients so that vmap can take them, and unstack them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core.params import Layout, Params, State
from raffed.core.training.task import Views
from raffed.errors import UsageError

Tensors = dict[str, Tensor]
Leaf = Tensor | float | str | None  # what a record consists of, after flattening
Pick = slice | Tensor  # selects clients of a stack


def pick_of(members: Sequence[int], is_prefix: bool, device: torch.device) -> Pick:
    """Return how to select some members: a slice if possible, because it gives views, and an index copies."""
    return slice(0, len(members)) if is_prefix else torch.tensor(members, device=device)


@dataclass(frozen=True)
class Stacked:
    """A leaf that differs between clients, as one tensor `all` [k, ...]."""

    all: Tensor


@dataclass(frozen=True)
class Taken:
    """Records of some clients in the form that vmap takes.

    Attributes:
        leaves: The leaves of the records.
        dims: For each leaf, the axis of clients, or None if all clients share the leaf.
    """

    leaves: list[Leaf]
    dims: list[int | None]


def taken_leaves(leaves: Sequence[Stacked | Leaf], pick: Pick) -> Taken:
    """Select some clients from the leaves of `stacked_records`."""
    chosen = [leaf.all[pick] if isinstance(leaf, Stacked) else leaf for leaf in leaves]
    return Taken(chosen, [0 if isinstance(leaf, Stacked) else None for leaf in leaves])


class StackedMemory:
    """What ingredients know about their clients, stacked: memories, models and class counts.

    What all clients share is stored once.
    """

    FIELDS = ("class_counts", "start", "state", "mine", "private", "own")
    NUMBERS = ("client", "steps", "lr_sum", "lr")  # tensors without dimensions where clients differ in them

    def __init__(self, members: list[Views]) -> None:
        # No step reads what compression left out, and it is empty before a client's first upload
        members = [{slot: view for slot, view in views.items() if slot != "compression"} for views in members]
        nobody = {
            "carried": None,
            "features": _refused,
            "reestimate": _refused,
            "gradients": _refused,
        }
        # Otherwise one client's values would be used for all
        self._template = {slot: view.replace(**nobody) for slot, view in members[0].items()}
        values = [
            {slot: {name: getattr(v, name) for name in self.FIELDS} for slot, v in views.items()}
            for views in members
        ]
        for name in self.NUMBERS:
            _put_numbers(values, members, name)
        self._leaves, self._spec = stacked_records(values if self._template else [{}])
        self._last: tuple[slice, Taken] | None = None

    def taken(self, pick: Pick) -> Taken:
        if isinstance(pick, Tensor):
            return taken_leaves(self._leaves, pick)
        if self._last is None or self._last[0] != pick:
            self._last = pick, taken_leaves(self._leaves, pick)
        return self._last[1]

    def views(self, leaves: list[Leaf]) -> Views:
        """Return the contexts of one client, inside vmap."""
        fields = pytree.tree_unflatten(leaves, self._spec)
        return {slot: view.replace(**fields[slot]) for slot, view in self._template.items()}


def stacked_records(
    records: Sequence[pytree.PyTree],
) -> tuple[list[Stacked | Leaf], pytree.TreeSpec]:
    """Stack records of one structure leaf by leaf.

    A leaf becomes `Stacked` if clients differ in it. If all share one object, that object is the leaf.

    Raises:
        UsageError: Plain values or shapes differ. Such a memory cannot be stacked, so the method must run one
            client at a time.
    """
    flat = [pytree.tree_flatten(record) for record in records]
    spec = flat[0][1]
    if any(other != spec for _, other in flat):
        raise UsageError("clients whose memories have different fields cannot be stacked; use cohort = 0")
    leaves: list[Stacked | Leaf] = []
    for column in zip(*(values for values, _ in flat), strict=True):
        first = column[0]
        if all(value is first for value in column):
            leaves.append(first)
        elif isinstance(first, Tensor) and all(
            isinstance(v, Tensor) and v.shape == first.shape for v in column
        ):
            leaves.append(Stacked(torch.stack(list(column))))
        elif not isinstance(first, Tensor) and all(
            type(value) is type(first) and value == first for value in column
        ):
            leaves.append(first)
        else:
            raise UsageError(
                "clients whose memories differ in shape or in plain values cannot be stacked; use cohort = 0"
            )
    return leaves, spec


def _put_numbers(values: list[dict[str, dict[str, Leaf]]], members: list[Views], name: str) -> None:
    """Put a number of every client, as its contexts have it, into the values of its slots.

    It stays a number if all clients have the same. Otherwise a loss gets it as a tensor without dimensions.
    """
    for slot in members[0]:
        numbers = [getattr(views[slot], name) for views in members]
        if any(one != numbers[0] for one in numbers):
            device = members[0][slot].start.w.device
            numbers = list(torch.tensor(numbers, device=device).unbind())  # one copy to a GPU for all
        for row, number in zip(values, numbers, strict=True):
            row[slot][name] = number


def stacked_params(points: Sequence[Params]) -> Tensors:
    """Return name → [k, ...], as own copies."""
    first = points[0]
    if all(point is first for point in points):
        return {name: t[None].repeat(len(points), *(1,) * t.dim()) for name, t in first.tensors.items()}
    return {name: torch.stack([point[name] for point in points]) for name in first.names}


def unstacked(tensors: Tensors, layout: Layout, k: int) -> list[Params]:
    """Return k points, each with its own buffer.

    So keeping one of them does not keep the others in memory.
    """
    if not layout.names:
        return [Params({})] * k
    flat = next(iter(tensors.values())).new_zeros(k, layout.size)
    for name, count, at in zip(layout.names, layout.counts, layout.offsets, strict=True):
        flat[:, at : at + count] = tensors[name].reshape(k, count)
    return [Params.from_flat(layout, row.clone()) for row in flat.unbind()]


def taken_from(tensors: Tensors, pick: Pick) -> Tensors:
    return {name: tensor[pick] for name, tensor in tensors.items()}


def put_back(whole: Tensors, part: Tensors, pick: Pick) -> None:
    for name, tensor in part.items():
        whole[name][pick] = tensor


def _refused(*_: State) -> NoReturn:
    raise TypeError("k.features, k.reestimate and k.gradients belong into finish(), not into an objective")

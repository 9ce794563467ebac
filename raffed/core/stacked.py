"""Cohort execution: k clients of one network stacked and stepped together with `torch.func.vmap`  (design.md §1).

Equal to `one_by_one` up to the rounding of batched kernels, from the same random streams. Clients of unequal size are not
padded: every tick advances the largest group of clients whose next batches have equal size. So no ingredient has to
know of a mask, BatchNorm sees no padding and no arithmetic is wasted; a client waits while its batch size is rare. Which
clients step together depends on their sizes alone, so a stack has the same bits wherever it is computed.

Forward runs under vmap; backward is plain autograd of the summed losses, whose gradient by a client's weights is that
client's own. Weights lie in one block [k, ...] a tensor, so that clients still running are a prefix: a view, not a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from raffed.core import dropout
from raffed.core.context import Context, Forward
from raffed.core.errors import UsageError
from raffed.core.network import Network
from raffed.core.params import Layout, Params, State
from raffed.core.sgd import Trained, fused_step
from raffed.core.stretch import Augmentation, Stretch, Task, Views, draws_of, one_by_one, with_draws

Tensors = dict[str, Tensor]
OWN = "own:"  # opens the names of companions, which lie beside the network's weights


@dataclass(frozen=True)
class Tick:
    """One step of some members of a stack: their positions, ascending, each one's step number, and their batch size."""

    members: tuple[int, ...]
    steps: tuple[int, ...]
    batch: int

    @property
    def is_prefix(self) -> bool:
        return self.members[-1] == len(self.members) - 1


def schedule(sizes: Sequence[Sequence[int]]) -> Iterator[Tick]:
    """Ticks that take every member through its batches in order. `sizes[i][j]`: samples in member i's step j.

    Each tick takes the most common next batch size (the larger of equals) and every member that waits for it.
    """
    at = [0] * len(sizes)
    while waiting := {i: own[at[i]] for i, own in enumerate(sizes) if at[i] < len(own)}:
        counts = Counter(waiting.values())
        batch = max(counts, key=lambda size: (counts[size], size))
        members = tuple(i for i, size in waiting.items() if size == batch)
        yield Tick(members, tuple(at[i] for i in members), batch)
        for i in members:
            at[i] += 1


def stacked(net: Network, task: Task, stretches: Sequence[Stretch], augmentation: Augmentation | None) -> list[Trained]:
    """All stretches as one stack; the results in the order given. A rule of its own (`Task.rule`) runs client by client."""
    if task.rule is not None:
        return one_by_one(net, task, stretches, augmentation)
    order = sorted(range(len(stretches)), key=lambda i: -len(stretches[i].batches))  # those still running are a prefix
    stack = _Stack(net, task, [stretches[i] for i in order], augmentation)
    for tick in schedule([[index.numel() for index in own.batches] for own in stack.members]):
        stack.step(tick)
    done = stack.results()
    back = sorted(range(len(order)), key=order.__getitem__)
    return [done[i] for i in back]


class _Stack:
    """Weights, velocities, buffers, data and memories of k clients, stacked."""

    def __init__(self, net: Network, task: Task, members: list[Stretch], augmentation: Augmentation | None) -> None:
        self.net, self.task, self.members, self.augmentation = net, task, members, augmentation
        names = net.leaves(task.part)  # also stands BatchNorm still where the body rests
        w = stacked_params([one.start.w for one in members])
        self.b = stacked_params([one.start.b for one in members])
        self.live = {name: tensor for name, tensor in w.items() if name in names}
        self.rest = {name: tensor for name, tensor in w.items() if name not in names}
        own = stacked_params([one.own for one in members])
        dials = task.personal.dials if task.personal is not None else ()
        self.live |= {OWN + name: tensor for name, tensor in own.items() if name not in dials}
        self.dials = {OWN + name: tensor for name, tensor in own.items() if name in dials}
        self.velocity = [torch.zeros_like(t) for t in self.live.values()] if task.solver.momentum else []
        self.loss = torch.zeros(len(members), device=net.device)
        self.memory = _Memory([one.views for one in members])
        self.x = torch.cat([one.data.x for one in members])
        self.y = torch.cat([one.data.y for one in members])
        starts = torch.tensor([0] + [one.data.n for one in members[:-1]]).cumsum(0).tolist()
        self.index = [[index + at for index in one.batches] for one, at in zip(members, starts, strict=True)]

    def step(self, tick: Tick) -> None:
        """One tick: gather, forward under vmap, one backward, one update."""
        group = len(tick.members)
        pick = slice(0, group) if tick.is_prefix else torch.tensor(tick.members, device=self.net.device)
        live, rest, b = _taken(self.live, pick), _taken(self.rest, pick), _taken(self.b, pick)
        dials = _taken(self.dials, pick)
        velocity = [t[pick] for t in self.velocity]
        x, y = self._batch(tick)
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in {**live, **dials}.items()}
        losses, views = self._losses({**rest, **leaves}, b, x, y, tick, pick)
        grads = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        bent, slope = self._bent(dict(zip(leaves, grads, strict=True)), views)
        if dials:
            _put_back(self.dials, self._turned(dials, slope, tick), pick)
        fused_step(list(live.values()), bent, velocity, self.task.solver)
        if not tick.is_prefix:
            _put_back(self.live, live, pick)
            _put_back(self.b, b, pick)
            for whole, part in zip(self.velocity, velocity, strict=True):
                whole[pick] = part
        self.loss[pick] += losses.detach() * tick.batch

    def results(self) -> list[Trained]:
        """Each member's own state and mean loss."""
        everything = {**self.live, **self.rest, **self.dials}
        weights = _unstacked(everything, self.net.w_layout, len(self.members))
        own_layout = self.members[0].own.layout
        companions = _unstacked({name.removeprefix(OWN): t for name, t in everything.items() if name.startswith(OWN)},
                                own_layout, len(self.members))  # fmt: skip
        buffers = _unstacked(self.b, self.net.b_layout, len(self.members))
        totals = self.loss.tolist()
        done = []
        for own, w, b, c, total in zip(self.members, weights, buffers, companions, totals, strict=True):
            seen = sum(index.numel() for index in own.batches)
            done.append(Trained(State(w, b), total / seen if seen else 0.0, len(own.batches), c))
        return done

    def _batch(self, tick: Tick) -> tuple[Tensor, Tensor]:
        """x [g, B, ...] and y [g, B], augmented by each client's own numbers."""
        index = torch.cat([self.index[i][step] for i, step in zip(tick.members, tick.steps, strict=True)]).to(self.x.device)
        x, y = self.x.index_select(0, index), self.y.index_select(0, index)
        own = [self.members[i].augment for i in tick.members]
        if self.augmentation is not None:
            x = self.augmentation.apply(x, torch.cat([self.augmentation.draw(tick.batch, g) for g in own if g is not None]))
        group = len(tick.members)
        return x.view(group, tick.batch, *x.shape[1:]), y.view(group, tick.batch)

    def _losses(self, w: Tensors, b: Tensors, x: Tensor, y: Tensor, tick: Tick, pick: Any) -> tuple[Tensor, _Taken]:
        members = [self.members[i] for i in tick.members]
        shapes = self.net.noise_shapes(x[0])
        noise = [dropout.draw(shapes, one.dropout) for one in members if one.dropout is not None] if shapes else []
        uniform = [torch.stack(column) for column in zip(*noise, strict=True)]
        rows = [draws_of(self.task, one, tick.batch) for one in members]
        drawn = {slot: torch.stack([row[slot] for row in rows]).to(x.device) for slot in rows[0]}
        memory = self.memory.taken(pick)

        def loss(w: Tensors, b: Tensors, x: Tensor, y: Tensor, uniform: list[Tensor], drawn: Tensors, own: list[Any]) -> Tensor:
            shared = {name: t for name, t in w.items() if not name.startswith(OWN)}
            f = self.net.forward_with(shared, b, x, y, uniform)
            beside = {name.removeprefix(OWN): t for name, t in w.items() if name.startswith(OWN)}
            f = replace(f, own=Params(beside)) if beside else f
            return self.task.objective(f, with_draws(self.memory.views(own), drawn))

        together: Callable[..., Tensor] = vmap(loss, in_dims=(0, 0, 0, 0, 0, 0, memory.dims))
        return together(w, b, x, y, uniform, drawn, memory.leaves), memory

    def _bent(self, grads: Tensors, memory: _Taken) -> tuple[list[Tensor], Tensors]:
        """The gradients that the solver steps along, in the order of `live`, and the dials'."""
        limit, correct = self.task.solver.clip_norm, self.task.correct
        shared = {name: g for name, g in grads.items() if not name.startswith(OWN)}
        beside = {name: g for name, g in grads.items() if name.startswith(OWN)}
        if limit is not None:
            shared, beside = _clipped(shared, limit), _clipped(beside, limit)
        if correct is not None:

            def bend(g: Tensors, own: list[Any]) -> Tensors:
                return correct(Params(g), self.memory.views(own)).tensors

            together: Callable[..., Tensors] = vmap(bend, in_dims=(0, memory.dims))
            shared = together(shared, memory.leaves)
        stepped = [g for name, g in beside.items() if name not in self.dials]
        return [*shared.values(), *stepped], {name: g for name, g in beside.items() if name in self.dials}

    def _turned(self, dials: Tensors, slope: Tensors, tick: Tick) -> Tensors:
        personal, lr = self.task.personal, self.task.solver.lr
        assert personal is not None

        def turn(now: Tensors, slope: Tensors, step: Tensor) -> Tensors:
            plain = [Params({name.removeprefix(OWN): t for name, t in one.items()}) for one in (now, slope)]
            return {OWN + name: t for name, t in personal.turn(plain[0], plain[1], lr, step).tensors.items()}

        turned: Tensors = vmap(turn)(dials, slope, torch.tensor(tick.steps, device=self.net.device))
        return turned


def _clipped(grads: Tensors, limit: float) -> Tensors:
    """Each client's gradients [g, ...] scaled to a joint norm of at most `limit`."""
    if not grads:
        return grads
    square = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0)  # [g]
    scale = torch.clamp(limit / (square.sqrt() + 1e-6), max=1.0)
    return {name: g * scale.view(-1, *(1,) * (g.dim() - 1)) for name, g in grads.items()}


@dataclass(frozen=True)
class _Taken:
    """The memories of a tick's members as vmap takes them: leaves, and for each the axis of clients or None."""

    leaves: list[Any]
    dims: list[int | None]


class _Memory:
    """What ingredients know of their clients, stacked: memories, models, class counts. What all share stays single."""

    FIELDS = ("class_counts", "start", "state", "mine", "private")

    def __init__(self, members: list[Views]) -> None:
        self._template = {slot: view.but(client=-1, features=_refused, reestimate=_refused) for slot, view in members[0].items()}
        values = [{slot: {name: getattr(v, name) for name in self.FIELDS} for slot, v in views.items()} for views in members]
        self._leaves, self._spec = stacked_records(values if self._template else [{}])
        self._last: tuple[Any, _Taken] | None = None

    def taken(self, pick: Any) -> _Taken:
        if self._last is not None and isinstance(pick, slice) and self._last[0] == pick:
            return self._last[1]
        stacks = [isinstance(leaf, _Stacked) for leaf in self._leaves]
        leaves = [leaf.all[pick] if isinstance(leaf, _Stacked) else leaf for leaf in self._leaves]
        made = _Taken(leaves, [0 if one else None for one in stacks])
        self._last = pick, made
        return made

    def views(self, leaves: list[Any]) -> Views:
        """The contexts of one client, inside vmap."""
        fields = pytree.tree_unflatten(leaves, self._spec)
        return {slot: view.but(**fields[slot]) for slot, view in self._template.items()}


@dataclass(frozen=True)
class _Stacked:
    all: Tensor  # [k, ...]


def stacked_records(records: Sequence[Any]) -> tuple[list[Any], Any]:
    """Records of one shape, leaf by leaf: `_Stacked` where clients differ, the common value where they share one object.

    Raises UsageError where plain values or shapes differ: such a memory cannot be stacked, the method runs one by one.
    """
    flat = [pytree.tree_flatten(record) for record in records]
    spec = flat[0][1]
    if any(other != spec for _, other in flat):
        raise UsageError("cohort execution: the clients' memories have different fields; use cohort = 0")
    leaves: list[Any] = []
    for column in zip(*(values for values, _ in flat), strict=True):
        first = column[0]
        if all(value is first for value in column):
            leaves.append(first)
        elif isinstance(first, Tensor) and all(value.shape == first.shape for value in column):
            leaves.append(_Stacked(torch.stack(list(column))))
        elif not isinstance(first, Tensor) and all(type(value) is type(first) and value == first for value in column):
            leaves.append(first)
        else:
            raise UsageError("cohort execution: the clients' memories differ in shape or in plain values; use cohort = 0")
    return leaves, spec


def stacked_params(points: Sequence[Params]) -> Tensors:
    """name → [k, ...], own copies."""
    first = points[0]
    if all(point is first for point in points):
        return {name: t[None].repeat(len(points), *(1,) * t.dim()) for name, t in first.tensors.items()}
    return {name: torch.stack([point[name] for point in points]) for name in first.names}


def _unstacked(tensors: Tensors, layout: Layout, k: int) -> list[Params]:
    """k points, the rows of one buffer [k, layout.size]."""
    if not layout.names:
        return [Params({})] * k
    flat = next(iter(tensors.values())).new_zeros(k, layout.size)
    for name, count, at in zip(layout.names, layout.counts, layout.offsets, strict=True):
        flat[:, at : at + count] = tensors[name].reshape(k, count)
    return [Params.from_flat(layout, row) for row in flat.unbind()]


def _taken(tensors: Tensors, pick: Any) -> Tensors:
    return {name: tensor[pick] for name, tensor in tensors.items()}


def _put_back(whole: Tensors, part: Tensors, pick: Any) -> None:
    for name, tensor in part.items():
        whole[name][pick] = tensor


def _refused(*_: Any) -> Any:
    raise TypeError("k.features and k.reestimate belong into finish(), not into an objective")


__all__ = ["Context", "Forward", "Tick", "schedule", "stacked", "stacked_params", "stacked_records"]

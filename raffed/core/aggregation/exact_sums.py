"""Exact sums over clients: the same bits for any order, any grouping and any number of actors.

See docs/design.md §3. The result of adding floats depends on their order, so floats are not added between
clients. A contribution p_i · w_i is rounded once to an integer multiple of 2^-bits and added as int64, which
is exact and associative. Compared with a float64 sum, the error is at most 2^-(bits+1) per client. That is
below float32's last bit for weights above 2^-20. The same arithmetic is used by secure aggregation.
"""

from __future__ import annotations

import functools
import math
import operator
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.core import seeds
from raffed.core.messages import Summable
from raffed.core.params import Params, arranged_like
from raffed.errors import NumericsError, UsageError

# Sums of floats with the same bits on every version of Python.


def plain_sum(values: Iterable[float]) -> float:
    """Add floats from left to right, each sum rounded once.

    Python's own `sum` does so up to version 3.11. From 3.12 on it makes up for rounding errors, so its last
    bits are others. What ends in a weight or in a metric row is therefore added here, or by `math.fsum`.
    """
    return functools.reduce(operator.add, values, 0.0)


def plain_mean(values: Sequence[float]) -> float:
    """Return the mean of floats that `plain_sum` adds; NaN without any."""
    return plain_sum(values) / len(values) if values else math.nan


# Pairwise masks that cancel in the sum, for secure aggregation.


class Mask:
    """The masks of one client in one round: Σ_{j>i} m_ij − Σ_{j<i} m_ij modulo 2^64.

    Each m_ij is uniform and comes from the random stream of the pair. Over all `peers`, which are the clients
    whose uploads count, the masks add up to 0.
    """

    def __init__(self, seed: int, round: int, client: int, peers: Sequence[int]) -> None:
        self._key, self._client, self._others = (
            (seed, round),
            client,
            [peer for peer in peers if peer != client],
        )

    def of(self, part: str, like: Tensor) -> Tensor:
        """Return the mask of one buffer, int64 with the shape and device of `like`.

        `part` is the name of the buffer.
        """
        (seed, round), me, where = self._key, self._client, zlib.crc32(part.encode())
        total = np.zeros(like.numel(), np.uint64)
        for peer in self._others:
            stream = seeds.rng(seed, "masks", round, min(me, peer), max(me, peer), where)
            drawn = stream.integers(0, 2**64, total.size, dtype=np.uint64)
            total = total + drawn if me < peer else total - drawn
        return torch.from_numpy(total.view(np.int64)).reshape(like.shape).to(like.device)


BITS = 44
# Fraction bits that an error advises for messages of larger numbers, such as sums over samples
WIDE = 24
# Numbers of small points that are rounded at a time; with fewer, calling costs more than computing
BLOCK = 1 << 18
# Numbers of a large point that are rounded at a time on a CPU; with more, they leave its cache
SLICE = 1 << 16
# Σ |p_i · w_i| up to which float64 holds every multiple of 2^-BITS, with room for rounding
REACH = 2.0 ** (52 - BITS)


def together(size: int) -> int:
    """Return how many points of `size` numbers `PointSum.add_all` rounds and adds in one operation."""
    return max(1, BLOCK // size)


def to_fixed(values: Tensor, weight: float | Tensor, bits: int, what: str, message: bool = False) -> Tensor:
    """Return round(weight · values · 2^bits) as int64, in the shape of `values`.

    The values are checked and not the products. Means of values inside the range stay inside it, so weights
    that add up to 1 cannot make a sum overflow.

    Args:
        values: Numbers of any shape.
        weight: A number in [0, 1], or float64 weights that broadcast to `values`.
        bits: Number of fractional bits.
        what: Name of the values in errors.
        message: Whether the values are those of a `Summable`, which can have a wider range.

    Raises:
        NumericsError: A value is not finite or outside ±2^(62-bits).
    """
    _largest(values.detach(), bits, what, message=message)
    return _rounded(values.detach(), weight, bits).to(torch.int64)


def _largest(values: Tensor, bits: int, what: str, whole: float = 1.0, message: bool = False) -> float:
    """Return max |values|, or 0 if there are no values. Raises NumericsError as `to_fixed` does.

    If the weights of a sum may add up to `whole`, which is more than 1, the range is so many times smaller.
    """
    if not values.numel():
        return 0.0
    low, high = (float(end) for end in torch.aminmax(values))
    end = 2.0 ** (62 - bits) / max(whole, 1.0)
    if not (low >= -end and high <= end):  # NaN fails both comparisons
        widens = message and bits > WIDE and math.isfinite(low) and math.isfinite(high)
        raise _outside(what, end, widens)
    return max(-low, high)


def check_range(sent: object, what: str) -> None:
    """Refuse what is not summed if a float of it is not finite, or outside the widest range of exact sums.

    Raises:
        NumericsError: There is such a number.
    """
    for leaf in pytree.tree_leaves(sent):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            _largest(leaf, WIDE, what)


def _rounded(values: Tensor, weight: float | Tensor, bits: int) -> Tensor:
    """Return weight · values in whole multiples of 2^-bits, as float64."""
    return values.to(torch.float64, copy=True).mul_(weight * 2.0**bits).round_()


def _outside(what: str, end: float, widens: bool = False) -> NumericsError:
    """Return the error about a value out of range; `widens` says that its message could have a wider one."""
    shown = f"2^{round(math.log2(end))}" if math.log2(end).is_integer() else f"{end:.1f}"
    if widens:
        return NumericsError(
            f"{what}: a value is outside ±{shown}, the range of exact sums: set fraction_bits = {WIDE} in "
            f"its class for ±2^{62 - WIDE}; or the training has diverged: try a smaller learning rate or "
            "clip_norm"
        )
    return NumericsError(
        f"{what}: a value is not finite or outside ±{shown}, the range of exact sums; "
        "the training has diverged: try a smaller learning rate or clip_norm"
    )


def from_fixed(total: Tensor, bits: int) -> Tensor:
    """Return the float32 value of an integer total: int64, exactly scaled in float64, then float32."""
    return total.to(torch.float64).mul_(2.0**-bits).to(torch.float32)


# Message without numbers, totals, number of messages, whether masked
Exported = tuple[Summable, list[NDArray[np.int64]], int, bool]


class PointSum:
    """Σ p_i · w_i of flat buffers, used for weights and for BatchNorm buffers.

    Whole multiples of 2^-BITS are added up in float64 first, which takes a third of the time. This is exact
    while Σ p_i · max|w_i| stays below REACH. Before that limit is passed, the float64 sum is added to the
    int64 total. A point that is larger is added to the int64 total directly.

    Args:
        whole: The most that the weights of all points can add up to, in this sum and in those that are merged
            with it.
    """

    def __init__(self, whole: float = 1.0) -> None:
        self._whole = whole
        self._total: Tensor | None = None  # int64
        self._gathered: Tensor | None = None  # float64
        self._reach = 0.0  # bound of every |number| in `_gathered`

    def add(self, point: Params, weight: float, what: str) -> None:
        flat = point.flat.detach()
        try:
            reach = weight * _largest(flat, BITS, what, self._whole)
        except NumericsError:
            for name in point.names:  # again, tensor by tensor, so that the message names the tensor
                _largest(point[name], BITS, f"{what}, tensor {name}", self._whole)
            raise
        if reach > REACH:
            self._settle(to_fixed(flat, weight, BITS, what))
            return
        into = self._room(flat, reach)
        # A GPU needs longer to start an operation than for a slice
        size = SLICE if flat.device.type == "cpu" else max(flat.numel(), 1)
        for i in range(0, flat.numel(), size):
            into[i : i + size].add_(_rounded(flat[i : i + size], weight, BITS))

    def _room(self, like: Tensor, reach: float) -> Tensor:
        """Return the float64 buffer, once multiples of up to `reach` can be added to it exactly."""
        if self._reach + reach > REACH:
            self._settle()
        if self._gathered is None:
            self._gathered = torch.zeros_like(like, dtype=torch.float64)
        self._reach += reach
        return self._gathered

    def _settle(self, more: Tensor | None = None) -> Tensor | None:
        """Move the float64 buffer into the int64 total on the CPU, add `more`, and return the total."""
        gathered = None if self._gathered is None else self._gathered.to(torch.int64)
        self._gathered, self._reach = None, 0.0
        for part in (gathered, more):
            if part is not None:
                self._total = part.cpu() if self._total is None else self._total.add_(part.cpu())
        return self._total

    def add_all(self, points: Sequence[Params], weights: Sequence[float], whats: Sequence[str]) -> None:
        """Add several points.

        The integers are the same as one by one. Small points are added in few operations.
        """
        per_point = points[0].layout.size
        if not per_point:  # the network has no buffers
            self._settle(torch.zeros(0, dtype=torch.int64))
            return
        at_once = together(per_point)
        for i in range(0, len(points), at_once):
            some = points[i : i + at_once]
            if len(some) == 1:
                self.add(some[0], weights[i], whats[i])
                continue
            try:
                flats = torch.stack([point.flat for point in some])
                p = torch.tensor(weights[i : i + at_once], dtype=torch.float64, device=flats.device)
                reach = float(p.sum()) * _largest(flats, BITS, whats[i], self._whole)
            except NumericsError:
                for point, weight, what in zip(points, weights, whats, strict=True):
                    self.add(
                        point, weight, what
                    )  # again, one by one, so that the message names the client and the tensor
                raise
            if reach > REACH:
                self._settle(to_fixed(flats, p[:, None], BITS, whats[i]).sum(0))
            else:
                self._room(flats[0], reach).add_(_rounded(flats, p[:, None], BITS).sum(0))

    def add_mask(self, mask: Mask, part: str) -> None:
        """Add a client's mask, modulo 2^64."""
        total = self._settle()
        assert total is not None
        total.add_(mask.of(part, total))

    def merge(self, other: NDArray[np.int64] | None) -> None:
        """Add another partial sum as it came from an actor.

        It is read in place, and copied only if it is the first one.
        """
        if other is None:
            return
        total = self._settle()
        if total is None:
            self._settle(torch.from_numpy(np.array(other)))
        else:
            mine = total.numpy()
            np.add(mine, other, out=mine)

    def export(self) -> NDArray[np.int64] | None:
        total = self._settle()
        return None if total is None else total.numpy()

    def value(self, like: Params) -> Params:
        total = self._settle()
        if total is None:
            raise ValueError("PointSum: no client has contributed")
        return Params.from_flat(like.layout, from_fixed(total, BITS))

    def since(self, before: PointSum | None, part: float, like: Params) -> Params:
        """Return what was added to this sum alone and not to the one before it, divided by `part`."""
        total, begun = self._settle(), None if before is None else before._settle()
        if total is None:
            raise ValueError("PointSum: no client has contributed")
        wide = (total if begun is None else total - begun).to(torch.float64) * 2.0**-BITS / part
        return Params.from_flat(like.layout, wide.to(torch.float32))


class WireSum:
    """Σ of `Summable` messages of one class, field by field. Integer fields are added as integers."""

    def __init__(self) -> None:
        self.count = 0
        self.hidden = False  # masked: the range can only be checked for the whole sum
        self._like: Summable | None = None
        self._totals: list[Tensor] = []

    def add(self, wire: Summable, what: str) -> None:
        where = f"{what}, {type(wire).__name__}"
        wire = self._arranged(wire, where)
        leaves = [torch.as_tensor(leaf) for leaf in _leaves(wire)]
        bits = wire.fraction_bits
        fixed = [
            to_fixed(x, 1.0, bits, where, True) if x.is_floating_point() else x.to(torch.int64)
            for x in leaves
        ]
        self._add(wire, [x.cpu() for x in fixed], 1, where)

    def add_mask(self, mask: Mask, part: str) -> None:
        """Add a client's mask, modulo 2^64."""
        self.hidden = True
        self._totals = [total + mask.of(f"{part}.{i}", total) for i, total in enumerate(self._totals)]

    def merge(self, other: Exported) -> None:
        wire, totals, count, hidden = other
        self.hidden = self.hidden or hidden
        where = f"the sum of {type(wire).__name__}"
        spec = pytree.tree_structure(wire)
        numbers = pytree.tree_unflatten([torch.from_numpy(np.array(t)) for t in totals], spec)
        self._add(wire, pytree.tree_leaves(self._arranged(numbers, where)), count, where)

    def _arranged(self, wire: Summable, where: str) -> Summable:
        """Return a message with its tensors in the order of the first one, since they are added by place."""
        if self._like is None:
            return wire
        try:
            return arranged_like(wire, self._like)
        except ValueError as error:
            raise UsageError(
                f"{where}: it cannot be added to another client's message: {error}; all clients must send "
                "the same fields and the same names"
            ) from None

    def _add(self, wire: Summable, fixed: list[Tensor], count: int, where: str) -> None:
        if self.count:
            fixed = [a + b for a, b in zip(self._totals, fixed, strict=True)]
            if not self.hidden and _excess(fixed):
                # Two sums in range cannot overflow, so every excess is seen here
                raise _too_large(where, wire)
        self._totals = fixed
        self._like = self._like or _template(wire)
        self.count += count

    def export(self) -> Exported:
        assert self._like is not None
        return self._like, [t.numpy() for t in self._totals], self.count, self.hidden

    def value(self) -> Summable:
        """Return the sum as a message of the same class."""
        assert self._like is not None
        if self.hidden and _excess(self._totals):
            raise _too_large(f"the sum of {type(self._like).__name__}", self._like)
        leaves, spec = pytree.tree_flatten(self._like)
        bits = self._like.fraction_bits
        restored = [_restore(t, x, bits) for t, x in zip(self._totals, leaves, strict=True)]
        total: Summable = pytree.tree_unflatten(restored, spec)
        return total


def _too_large(what: str, wire: Summable) -> NumericsError:
    return _outside(what, 2.0 ** (62 - wire.fraction_bits), wire.fraction_bits > WIDE)


def _excess(totals: Sequence[Tensor]) -> bool:
    return any(max(map(abs, map(int, torch.aminmax(t)))) > 2**62 for t in totals if t.numel())


def _template(wire: Summable) -> Summable:
    """Return the message without its numbers, so that a partial sum does not reveal one client's message."""
    emptied: Summable = pytree.tree_map(
        lambda x: torch.empty(0, dtype=x.dtype) if isinstance(x, Tensor) else type(x)(0), wire
    )
    return emptied


def _leaves(wire: Summable) -> list[Tensor | float]:
    leaves = pytree.tree_leaves(wire)
    for leaf in leaves:
        if not isinstance(leaf, Tensor | int | float):
            raise TypeError(f"{type(wire).__name__}: a {type(leaf).__name__} cannot be summed")
    return leaves


def _restore(total: Tensor, like: Tensor | float, bits: int) -> Tensor | float:
    if isinstance(like, Tensor):
        return from_fixed(total, bits) if like.is_floating_point() else total.to(like.dtype)
    return float(from_fixed(total, bits)) if isinstance(like, float) else int(total)

"""Partial sums of uploads: what an actor returns for all its clients, and how the driver merges them.

With shares of K columns (`Ingredient.shares`) there are K sums of models. Sum c is Σ p_i (a_i0 + … + a_ic)
w_i, so the last one is the sum of all uploads, and a column is the difference of two neighbours. Therefore
the columns add up to the sum of all uploads exactly, and one column is this sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.core.aggregation.exact_sums import BITS, Exported, Mask, PointSum, WireSum, check_range, to_fixed
from raffed.core.context import Received
from raffed.core.messages import ServerState, Summable, Upload, Wire, brought_back
from raffed.core.params import Params, State
from raffed.errors import NumericsError, UsageError


class ColumnTotals(Summable):
    """Σ p_i (a_i0 + … + a_ic) of every column c [K], int64, in multiples of 2^-BITS."""

    upto: Tensor


@dataclass
class PartialSum:
    """The partial sums of one actor in one round, ready to be sent: int64 buffers and messages.

    Attributes:
        w: Σ p_i · w_i in fixed point, or None.
        b: The same of the buffers.
        sums: Slot → sum of the `Summable` messages.
        each: Slot → [(client, message)] of the other messages, for rules that need every client.
        columns: Such sums (w, b) up to each column but the last.
    """

    w: NDArray[np.int64] | None = None
    b: NDArray[np.int64] | None = None
    sums: dict[str, Exported] = field(default_factory=dict)
    each: dict[str, list[tuple[int, Wire]]] = field(default_factory=dict)
    columns: list[tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]] = field(default_factory=list)


class UploadAccumulator:
    """Sum over the clients of one round, with the same bits for any order and any grouping.

    Args:
        keep: Whether the uploads themselves are kept as well, in the slot "server". A server rule that needs
            every upload (`ServerRule.each`) asks for it.
        whole: The most that the clients' weights p_i can add up to. With a server's rate η above 1
            (`Clock.mixing`) it is η, and then the numbers of a model must be η times smaller.
    """

    def __init__(self, keep: bool = False, whole: float = 1.0) -> None:
        self._keep, self._whole = keep, whole
        self._w, self._b = PointSum(whole), PointSum(whole)
        self._columns: list[tuple[PointSum, PointSum]] = []  # up to each column but the last
        self._sums: dict[str, WireSum] = {}
        self._each: dict[str, list[tuple[int, Wire]]] = {}

    def add(self, client: int, weight: float, upload: Upload, where: str) -> None:
        """Add p_i · (w_i, b_i) and the messages of one client.

        Args:
            client: Number of the client.
            weight: Its weight p_i.
            upload: What it sent.
            where: Beginning of the message of a NumericsError.
        """
        self.add_all([client], [weight], [upload], where)

    def add_all(
        self, clients: Sequence[int], weights: Sequence[float], uploads: Sequence[Upload], where: str
    ) -> None:
        """Add several clients at once. The sums are the same as if they were added one by one."""
        whos = [f"{where}, client {client}" for client in clients]
        self._w.add_all([upload.w for upload in uploads], weights, whos)
        self._b.add_all([upload.b for upload in uploads], weights, [f"{who}, buffers" for who in whos])
        self._add_columns(weights, uploads, whos)
        for client, who, upload in zip(clients, whos, uploads, strict=True):
            check_range(upload.report, f"{who}, report")
            if self._keep:
                self._each.setdefault("server", []).append((client, brought_back(upload)))
            for slot, wire in upload.slots.items():
                if isinstance(wire, Summable):
                    self._sums.setdefault(slot, WireSum()).add(wire, who)
                else:
                    message = brought_back(wire)
                    check_range(message, f"{who}, {slot}")
                    self._each.setdefault(slot, []).append((client, message))

    def _add_columns(self, weights: Sequence[float], uploads: Sequence[Upload], whos: Sequence[str]) -> None:
        told = [sent.shares.cpu().to(torch.float64).cumsum(0) for sent in uploads if sent.shares is not None]
        if not told:
            return
        if len(told) < len(uploads) or len({len(shares) for shares in told}) > 1:
            raise UsageError(
                f"{whos[0]}, and others: all clients must have shares of equally many columns (`shares`)"
            )
        for weight, upto, who in zip(weights, told, whos, strict=True):
            least = float(upto.diff(prepend=upto.new_zeros(1)).min())
            if not (least >= 0.0 and abs(float(upto[-1]) - 1.0) <= 1e-6):  # NaN fails both comparisons
                raise NumericsError(
                    f"{who}: the shares of its columns must be at least 0 and add up to 1; the least is "
                    f"{least:g}, and they add up to {float(upto[-1]):g}"
                )
            upto.clamp_(max=1.0)[-1] = 1.0
            totals = ColumnTotals(to_fixed(upto, weight, BITS, who))
            self._sums.setdefault("server", WireSum()).add(totals, who)
        for number in range(len(told[0]) - 1):
            parts = [weight * float(upto[number]) for weight, upto in zip(weights, told, strict=True)]
            w, b = self._column(number)
            w.add_all([upload.w for upload in uploads], parts, whos)
            b.add_all([upload.b for upload in uploads], parts, whos)

    def _column(self, number: int) -> tuple[PointSum, PointSum]:
        """Return the sums up to a column, which exist up to the one before it."""
        if number == len(self._columns):
            self._columns.append((PointSum(self._whole), PointSum(self._whole)))
        return self._columns[number]

    def add_mask(self, mask: Mask) -> None:
        """Add the mask of a client that was added before to every sum.

        Raises:
            UsageError: Something else than sums was sent, which masks cannot hide.
        """
        if self._each:
            raise UsageError(
                f"privacy.masks: the server needs {', '.join(sorted(self._each))} of each client, but "
                "masks reveal only sums; use a method whose messages are summed, or leave masks out"
            )
        for number, (w, b) in enumerate([(self._w, self._b), *self._columns]):
            w.add_mask(mask, f"w{number or ''}")
            b.add_mask(mask, f"b{number or ''}")
        for slot, total in self._sums.items():
            total.add_mask(mask, slot)

    def merge(self, partial: PartialSum) -> None:
        """Add the partial sums of another actor."""
        self._w.merge(partial.w)
        self._b.merge(partial.b)
        for number, (theirs_w, theirs_b) in enumerate(partial.columns):
            w, b = self._column(number)
            w.merge(theirs_w)
            b.merge(theirs_b)
        for slot, wire_sum in partial.sums.items():
            self._sums.setdefault(slot, WireSum()).merge(wire_sum)
        for slot, wires in partial.each.items():
            self._each.setdefault(slot, []).extend(wires)

    def export(self) -> PartialSum:
        sums = {slot: total.export() for slot, total in self._sums.items()}
        columns = [(w.export(), b.export()) for w, b in self._columns]
        return PartialSum(self._w.export(), self._b.export(), sums, self._each, columns)

    def finish(self, like: ServerState) -> tuple[Params, Params, dict[str, Received]]:
        """Return (mean weights, mean buffers, what each slot received)."""
        received: dict[str, Received] = {}
        for slot, total in self._sums.items():
            received[slot] = Received(total.count, sum=total.value())
        for slot, wires in self._each.items():
            clients, ordered = zip(*sorted(wires, key=lambda pair: pair[0]), strict=True)
            received[slot] = Received(len(wires), each=ordered, clients=clients)
        if "server" in self._sums:
            columns, totals = self._column_means(like)
            received["server"] = received["server"].replace(sum=None, columns=columns, totals=totals)
        return self._w.value(like.w), self._b.value(like.b), received

    def _column_means(self, like: ServerState) -> tuple[tuple[State | None, ...], Tensor]:
        """Return the mean model of each column, None if nobody has a share of it, and its part of all p_i."""
        told = self._sums["server"].value()
        assert isinstance(told, ColumnTotals)
        upto = told.upto.to(torch.float64)
        parts = upto.diff(prepend=upto.new_zeros(1)) / upto[-1]
        begins, ends = [None, *self._columns], [*self._columns, (self._w, self._b)]
        means: list[State | None] = []
        for begin, (w, b), part in zip(begins, ends, parts.tolist(), strict=True):
            before_w, before_b = begin or (None, None)
            mean = State(w.since(before_w, part, like.w), b.since(before_b, part, like.b)) if part else None
            means.append(mean)
        return tuple(means), parts

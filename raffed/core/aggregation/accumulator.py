"""Partial sums of uploads: what an actor returns for all its clients, and how the driver merges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from raffed.core.aggregation.exact_sums import Exported, PointSum, WireSum
from raffed.core.aggregation.masking import Mask
from raffed.core.context import Received
from raffed.core.messages import ServerState, Summable, Upload, Wire
from raffed.core.params import Params
from raffed.core.transfer import brought_back
from raffed.errors import UsageError


@dataclass
class PartialSum:
    """The partial sums of one actor in one round, ready to be sent: int64 buffers and messages.

    Attributes:
        w: Σ p_i · w_i in fixed point, or None.
        b: The same of the buffers.
        sums: Slot → sum of the `Summable` messages.
        each: Slot → [(client, message)] of the other messages, for rules that need every client.
    """

    w: NDArray[np.int64] | None = None
    b: NDArray[np.int64] | None = None
    sums: dict[str, Exported] = field(default_factory=dict)
    each: dict[str, list[tuple[int, Wire]]] = field(default_factory=dict)


class UploadAccumulator:
    """Sum over the clients of one round, with the same bits for any order and any grouping.

    Args:
        keep: Whether the uploads themselves are kept as well, in the slot "server". A server rule that needs
            every upload (`ServerRule.each`) asks for it.
        whole: The most that the clients' weights p_i can add up to. With a server's rate η above 1
            (`Clock.mixing`) it is η, and then the numbers of a model must be η times smaller.
    """

    def __init__(self, keep: bool = False, whole: float = 1.0) -> None:
        self._keep = keep
        self._w, self._b = PointSum(whole), PointSum(whole)
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
        self._w.add_all([one.w for one in uploads], weights, whos)
        self._b.add_all([one.b for one in uploads], weights, [f"{who}, buffers" for who in whos])
        for client, who, upload in zip(clients, whos, uploads, strict=True):
            if self._keep:
                self._each.setdefault("server", []).append((client, brought_back(upload)))
            for slot, wire in upload.slots.items():
                if isinstance(wire, Summable):
                    self._sums.setdefault(slot, WireSum()).add(wire, who)
                else:
                    self._each.setdefault(slot, []).append((client, brought_back(wire)))

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
        self._w.add_mask(mask, "w")
        self._b.add_mask(mask, "b")
        for slot, total in self._sums.items():
            total.add_mask(mask, slot)

    def merge(self, partial: PartialSum) -> None:
        """Add the partial sums of another actor."""
        self._w.merge(partial.w)
        self._b.merge(partial.b)
        for slot, theirs in partial.sums.items():
            self._sums.setdefault(slot, WireSum()).merge(theirs)
        for slot, wires in partial.each.items():
            self._each.setdefault(slot, []).extend(wires)

    def export(self) -> PartialSum:
        sums = {slot: total.export() for slot, total in self._sums.items()}
        return PartialSum(self._w.export(), self._b.export(), sums, self._each)

    def finish(self, like: ServerState) -> tuple[Params, Params, dict[str, Received]]:
        """Return (mean weights, mean buffers, what each slot received)."""
        received: dict[str, Received] = {}
        for slot, total in self._sums.items():
            received[slot] = Received(total.count, sum=total.value())
        for slot, wires in self._each.items():
            ordered = sorted(wires, key=lambda one: one[0])
            received[slot] = Received(len(wires), each=tuple(wire for _, wire in ordered))
        return self._w.value(like.w), self._b.value(like.b), received

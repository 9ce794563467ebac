"""Uploads folded into partial sums: what an actor returns for all its clients, and how the driver joins
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raffed.core.aggregation.exact_sums import Exported, PointSum, WireSum
from raffed.core.aggregation.masking import Mask
from raffed.core.context import Received
from raffed.core.messages import ServerState, Summable, Upload, Wire
from raffed.core.params import Params, brought_back
from raffed.errors import UsageError


@dataclass
class PartialSum:
    """One actor's partial sums of one round, ready to travel: int64 buffers, summed messages, and single
    messages.

        `each`: slot → [(client, message)] of the Wires that are not Summable (rules that truly need every
        client).
    """

    w: NDArray[np.int64] | None = None
    b: NDArray[np.int64] | None = None
    sums: dict[str, Exported] = field(default_factory=dict)
    each: dict[str, list[tuple[int, Wire]]] = field(default_factory=dict)


class UploadAccumulator:
    """Σ over clients of one round; the result has the same bits for any order and any grouping.

    `keep`: keep the uploads themselves as well, for a server rule that needs each (ServerRule.each); slot
    "server".
    """

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._w, self._b = PointSum(), PointSum()
        self._sums: dict[str, WireSum] = {}
        self._each: dict[str, list[tuple[int, Wire]]] = {}

    def add(self, client: int, weight: float, upload: Upload, where: str) -> None:
        """Add p_i · (w_i, b_i) and the messages of one client. `where` opens the message of a
        NumericsError.
        """
        self.add_all([client], [weight], [upload], where)

    def add_all(
        self, clients: Sequence[int], weights: Sequence[float], uploads: Sequence[Upload], where: str
    ) -> None:
        """Several clients at once; the same sums as one by one."""
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
        """Put the mask of a client that was added over every sum; a UsageError if something else was sent."""
        if self._each:
            raise UsageError(
                f"privacy.masks: the server needs {', '.join(sorted(self._each))} of each client, masks hide "
                f"all but sums; "
                "use a method whose messages are summed, or no masks"
            )
        self._w.add_mask(mask, "w")
        self._b.add_mask(mask, "b")
        for slot, total in self._sums.items():
            total.add_mask(mask, slot)

    def merge(self, partial: PartialSum) -> None:
        """Add what another actor folded."""
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
        """(mean weights, mean buffers, what each slot received)."""
        received: dict[str, Received] = {}
        for slot, total in self._sums.items():
            received[slot] = Received(total.count, sum=total.value())
        for slot, wires in self._each.items():
            ordered: list[Any] = sorted(wires, key=lambda one: one[0])
            received[slot] = Received(len(wires), each=tuple(wire for _, wire in ordered))
        return self._w.value(like.w), self._b.value(like.b), received

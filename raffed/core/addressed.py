"""Servers that answer each client: what a client downloads, and the models from which it is mixed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.ingredients.base import fault
from raffed.core.messages import Addressed, Broadcast, Summable
from raffed.core.params import Params
from raffed.core.parts import Part, in_part
from raffed.own.user_code import described


def unaddressed(b: Broadcast) -> Broadcast:
    """Return what is sent to all clients alike; `b` itself if nothing in it is addressed."""
    same = {slot: message for slot, message in b.slots.items() if not isinstance(message, Addressed)}
    return b if len(same) == len(b.slots) else b.replace(slots=same)


def replied(b: Broadcast, client: int) -> Broadcast:
    """Return what one client downloads; `b` itself if nothing in it is addressed.

    Raises:
        UserCodeError: A reply is no broadcast, or has other weights or statistics than it was given.
    """
    sent = alike = unaddressed(b)
    for table in [message for message in b.slots.values() if isinstance(message, Addressed)]:
        sent = table.reply(sent, client)
        if not isinstance(sent, Broadcast) or unaddressed(sent) is not sent:
            raise fault(
                table,
                "reply",
                f"returned {described(sent)}; it must return the Broadcast that it was given, with other "
                "weights or messages, and without an Addressed message",
            )
        if (sent.w.layout, sent.b.layout) != (alike.w.layout, alike.b.layout):
            raise fault(
                table,
                "reply",
                f"returned weights or statistics of other names or shapes, {sent.w} and {sent.b}; it must "
                f"return {alike.w} and {alike.b}",
            )
    return sent


class Mixtures(Addressed):
    """Client i downloads Σ_r shares[i, r] · rows[r] in place of a part of the shared weights.

    The sum is exact and rounded once (docs/design.md §3). A client that is not `known` downloads what all
    would.

    Attributes:
        rows: Models as flat buffers [R, P], P = `Params.layout.size` of that part of the shared weights.
        shares: Shares [N, R], float64. They are at least 0, and add up to 1 for every known client.
        known: Which of the N clients get a mixture [N], bool.
        statistics: BatchNorm's statistics of the same models [R, Q], mixed alike, or None to leave these as
            they are.
        part: Part of the network that is mixed. Default "all".

    Raises:
        ValueError: The shares of a known client are no shares.
    """

    rows: Tensor
    shares: Tensor
    known: Tensor
    statistics: Tensor | None = None
    part: Part = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = (self.shares.sum(1) - 1.0).abs() <= 1e-6
        if len(wrong := ((self.shares < 0.0).any(1) | (self.known & ~whole)).nonzero()):
            raise ValueError(
                f"Mixtures.shares of client {int(wrong[0])} must be at least 0 and add up to 1, but are "
                f"{self.shares[int(wrong[0])].tolist()[:8]}"
            )

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        if not (client < len(self.known) and bool(self.known[client])):
            return b
        mixed = b.w.only(name for name in b.w.names if in_part(name, self.part))
        b = b.replace(w=b.w.joined(self._mixed(self.rows, client, mixed), b.w.names))
        return b if self.statistics is None else b.replace(b=self._mixed(self.statistics, client, b.b))

    def _mixed(self, rows: Tensor, client: int, like: Params) -> Params:
        used = self.shares[client].nonzero().flatten().tolist()
        points = [Params.from_flat(like.layout, rows[row]) for row in used]
        return mixture(points, self.shares[client][used].tolist(), like)


class ListedModels(Summable):
    """Models of others that a client downloads. Only those that exist are counted as sent.

    Attributes:
        number: Number of the client of each model plus 1, and 0 where there is none [M], int64.
        w: Their weights as vectors [M, P].
        b: Their BatchNorm statistics [M, Q].
    """

    rows = "number"

    number: Tensor
    w: Tensor
    b: Tensor


class Lists(Addressed):
    """Client i downloads whole models of others, which it finds in the slot "opening" (`ListedModels`).

    Attributes:
        rows: The models of all clients as vectors [N, P], in an order that the clients know.
        statistics: BatchNorm's statistics of the same models [N, Q].
        chosen: Clients whose models each client gets [N, M], int64. −1 is nobody.
    """

    rows: Tensor
    statistics: Tensor
    chosen: Tensor

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        nobody = self.chosen.new_full(self.chosen.shape[1:], -1)
        chosen = self.chosen[client] if client < len(self.chosen) else nobody
        exists = (chosen >= 0).to(self.rows.dtype)[:, None]
        w, statistics = (table[chosen.clamp(min=0)] * exists for table in (self.rows, self.statistics))
        return b.replace(slots={**b.slots, "opening": ListedModels(chosen + 1, w, statistics)})


def mixture(points: Sequence[Params], shares: Sequence[float], like: Params) -> Params:
    """Return Σ shares · points as an exact sum that is rounded once, where `like` is and of its type.

    Args:
        points: Points with the names of `like`, on the CPU.
        shares: Numbers from 0 to 1 that add up to at most 1.
        like: A point.
    """
    total = PointSum()
    total.add_all(points, shares, [f"row {number} of a mixture" for number in range(len(points))])
    return Params.from_flat(like.layout, total.value(like).flat.to(like.device, like.dtype))


def with_rows(before: Tensor | None, everyone: int, clients: Sequence[int], rows: Sequence[Tensor]) -> Tensor:
    """Return a table [everyone, ...] with new rows for some clients. The others keep theirs, at first 0.

    Args:
        before: The table before, or None.
        everyone: Number of all clients (`Spec.everyone`).
        clients: Numbers of the clients with new rows.
        rows: Their rows, in the same order.
    """
    table = rows[0].new_zeros(everyone, *rows[0].shape) if before is None else before.clone()
    table[list(clients)] = torch.stack(list(rows)).to(table.dtype)
    return table

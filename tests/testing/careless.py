"""Methods as a careless person writes them. Each breaks one sentence of the contract, which no law of FedAvg
would show: the method trains, and its serial run looks well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from raffed.core.context import Context, Forward, ServerContext
from raffed.core.ingredients import Ingredient, Term
from raffed.core.messages import Addressed, Broadcast, Private, Summable, Wire
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import ParameterSplit
from raffed.core.server import ServerRule

LAST_MODEL: dict[str, Params] = {}
NOTHING_YET = torch.zeros(())
ASKED: list[int] = []


class Kept(Private):
    w: Params


class Total(Private):
    value: Tensor


class Told(Wire):
    number: Tensor


class Message(Summable):
    w: Params


class HiddenNumbers(Summable):
    """A message whose numbers are declared to be mere labels."""

    labels = ("centres",)

    count: Tensor
    centres: Tensor


class FewRows(Summable):
    """A message that counts only the rows of the classes that a client holds."""

    rows = "counts"

    counts: Tensor
    centres: Tensor


class CheapNumbers(Summable):
    """A message that counts a byte for each number, as if somebody had compressed it."""

    centres: Tensor

    def nbytes(self) -> int:
        return self.centres.numel()


class Relay(Term):
    """Pulls to the model of whoever was trained before, which is kept in a module variable."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        return 0.1 * (f.w - LAST_MODEL.get("w", k.w0)).sq_norm()

    def finish(self, k: Context) -> tuple[None, None]:
        LAST_MODEL["w"] = k.w.clone()
        return None, None


class GlobalVelocity(ServerRule[None]):
    """Momentum of the server, which is kept in the class."""

    velocity: ClassVar[dict[str, Params]] = {}

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        self.velocity["v"] = 0.9 * self.velocity.get("v", w.zeros()) + (mean - w)
        return None, w + self.velocity["v"]


class SendsItsMemory(Ingredient):
    def finish(self, k: Context) -> tuple[Kept, Kept]:
        return Kept(k.w), Kept(k.w)


class SendsEverything(Ingredient):
    """Sends the whole model, although the head is private."""

    def outgoing(self, w: Params, k: Context) -> Params:
        return k.w.clone()


class OneTensorForBoth(Ingredient):
    def client_init(self, k: Context) -> Kept:
        return Kept(k.w0)

    def finish(self, k: Context) -> tuple[Kept, Message]:
        moved = k.w - k.w0
        return Kept(moved), Message(moved)


class SendsLabels(Ingredient):
    def finish(self, k: Context) -> tuple[None, HiddenNumbers]:
        return None, HiddenNumbers(torch.ones(1), torch.ones(3, 2))


class SendsAllRows(Ingredient):
    """Sends numbers for classes that the client does not hold, and does not count them."""

    def finish(self, k: Context) -> tuple[None, FewRows]:
        return None, FewRows(k.class_counts.clone(), torch.ones(3, 2))


class SendsCheaply(Ingredient):
    """Counts a fourth of the bytes."""

    def finish(self, k: Context) -> tuple[None, CheapNumbers]:
        return None, CheapNumbers(torch.ones(3, 2))


class AddsInPlace(Term):
    def client_init(self, k: Context) -> Total:
        return Total(torch.zeros(()))

    def loss(self, f: Forward, k: Context) -> Tensor:
        return 0.1 * f.logits.square().mean()

    def finish(self, k: Context) -> tuple[Total, None]:
        k.mine.value.add_(k.w.sq_norm())
        return k.mine, None


class OneTotalForAll(Term):
    """Starts every client's total with one tensor of the module, and adds to it in place."""

    def client_init(self, k: Context) -> Total:
        return Total(NOTHING_YET)

    def loss(self, f: Forward, k: Context) -> Tensor:
        return 0.1 * f.logits.square().mean()

    def finish(self, k: Context) -> tuple[Total, None]:
        k.mine.value.add_(1)
        return k.mine, None


class AnswersInTurn(Addressed):
    """Sends every client one more number than the last one that asked."""

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        ASKED.append(client)
        return b.replace(slots={**b.slots, "message": Told(torch.tensor(len(ASKED)))})


class SendsInTurn(ServerRule):
    def init(self, w: Params) -> AnswersInTurn:
        return AnswersInTurn()

    def step(
        self, own: AnswersInTurn, w: Params, mean: Params, k: ServerContext
    ) -> tuple[AnswersInTurn, Params]:
        return own, mean


def of(**parts: object) -> Callable[[], Method]:
    def careless() -> Method:
        return Method("Careless", **parts)  # type: ignore[arg-type]

    return careless


relay = of(terms=(Relay(),))
ALL_AND_A_PRIVATE_HEAD = of(message=SendsEverything(), split=ParameterSplit(personal="head"))
CARELESS: tuple[tuple[Callable[[], Method], str, str], ...] = (
    (relay, "client-order", "put what a client remembers into a Private record"),
    (relay, "any-packing", "put what a client remembers into a Private record"),
    (relay, "no-module-state", "its variable LAST_MODEL"),
    (of(server=GlobalVelocity()), "resume-is-uninterrupted", "keep nothing outside the records"),
    (of(message=SendsItsMemory()), "private-stays", "only a Wire may travel"),
    (ALL_AND_A_PRIVATE_HEAD, "private-stays", "returned other tensors than it must"),
    (of(message=OneTensorForBoth()), "own-storage", "send a copy: `.clone()`"),
    (of(message=SendsLabels()), "bytes-counted", "take centres out of `labels`"),
    (of(message=SendsAllRows()), "bytes-counted", "set these rows to 0"),
    (of(message=SendsCheaply()), "bytes-counted", "do not override `nbytes`"),
    (of(terms=(AddsInPlace(),)), "inputs-unchanged", "make new tensors instead"),
    (of(terms=(OneTotalForAll(),)), "undrawn-unchanged", "make a new one in `client_init`"),
    (of(server=SendsInTurn()), "replies", "change nothing in `reply`"),
)

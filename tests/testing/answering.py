"""Methods whose server answers each client, for tests of replies: by models, and by lists of numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from raffed import (
    Addressed,
    Broadcast,
    Mean,
    Method,
    Mixtures,
    Params,
    Private,
    ServerRule,
    Summable,
    Term,
    Wire,
)
from raffed.core.context import Context, Forward, ServerContext, Spec
from raffed.core.messages import Upload
from raffed.core.server import with_rows


class OwnUploads(ServerRule[Mixtures | None]):
    """Every client downloads what it uploaded last: the shares are e_i."""

    each: ClassVar[bool] = True
    numbers: int = 0

    def table_size(self, w: Params, spec: Spec) -> int:
        return self.numbers or spec.everyone * w.layout.size

    def step(
        self, own: Mixtures | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Mixtures, Params]:
        got, everyone = k.received["server"], k.spec.everyone
        sent = [one for one in got.each if isinstance(one, Upload)]
        rows = with_rows(own.rows if own else None, everyone, got.clients, [one.w.flat for one in sent])
        statistics = with_rows(
            own.statistics if own else None, everyone, got.clients, [one.b.flat for one in sent]
        )
        known = with_rows(own.known if own else None, everyone, got.clients, [torch.tensor(True)] * len(sent))
        return Mixtures(rows, torch.eye(everyone, dtype=torch.float64), known, statistics), mean


class Kept(Private):
    """What the server keeps for itself beside its table."""

    mixtures: Mixtures


class KeptToItself(ServerRule[Kept | None]):
    """The same, from a memory that is not sent as it is."""

    name: str = "replies"

    each: ClassVar[bool] = True

    def step(self, own: Kept | None, w: Params, mean: Params, k: ServerContext) -> tuple[Kept, Params]:
        mixtures, w = OwnUploads().step(own.mixtures if own else None, w, mean, k)
        return Kept(mixtures), w

    def extra_broadcast(self, own: Kept | None) -> dict[str, Wire]:
        return {self.name: own.mixtures} if own else {}


class SampleWeights(ServerRule[Mixtures | None]):
    """Every client downloads the mean of the uploads, with the weights of FedAvg as its shares."""

    each: ClassVar[bool] = True

    def step(
        self, own: Mixtures | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Mixtures, Params]:
        sent = [one for one in k.received["server"].each if isinstance(one, Upload)]
        weights = torch.tensor(Mean().weights([one.n or 0 for one in sent]), dtype=torch.float64)
        rows, statistics = (torch.stack([getattr(one, part).flat for one in sent]) for part in ("w", "b"))
        shares = weights.repeat(k.spec.everyone, 1)
        return Mixtures(rows, shares, torch.ones(k.spec.everyone, dtype=torch.bool), statistics), mean


class Numbers(Summable):
    """Numbers [4] for one client, of which it gets those that are told [4]."""

    rows = "told"
    labels = ("told",)

    told: Tensor
    numbers: Tensor


class Lists(Addressed):
    """Client i gets i numbers, which are i."""

    slot: str

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        told = torch.arange(4) < client
        return b.replace(slots={**b.slots, self.slot: Numbers(told.long(), told * float(client))})


class Sending(ServerRule[Lists]):
    """Sends `Lists` from the first round on."""

    def init(self, w: Params) -> Lists:
        return Lists("term-TowardsTheSum")

    def step(self, own: Lists, w: Params, mean: Params, k: ServerContext) -> tuple[Lists, Params]:
        return own, mean


class TowardsTheSum(Term):
    """½ (b − Σ numbers)² for the bias b of every class."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        wanted: Tensor = k.server.numbers.sum()
        return (f.w["head.bias"] - wanted).square().sum() / 2


class Shorter(Addressed):
    """Replies with the head alone."""

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        return b.replace(w=b.w.only(["head.weight"]))


class SendingShorter(ServerRule[Shorter]):
    def init(self, w: Params) -> Shorter:
        return Shorter()

    def step(self, own: Shorter, w: Params, mean: Params, k: ServerContext) -> tuple[Shorter, Params]:
        return own, mean


def own_uploads() -> Method:
    """Local training from the common initial model."""
    return Method("Own uploads", server=OwnUploads(), mean=Mean(by="clients"))


def too_large() -> Method:
    """The same with a table of 2^30 numbers."""
    return replace(own_uploads(), server=OwnUploads(2**30))


def sample_weights() -> Method:
    """FedAvg."""
    return Method("Sample weights", server=SampleWeights())


def lists() -> Method:
    """Biases that are pulled to another number at each client."""
    return Method("Lists", terms=(TowardsTheSum(),), server=Sending())


def shorter() -> Method:
    """A reply without the body."""
    return Method("Shorter", server=SendingShorter())

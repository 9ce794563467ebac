"""FedTGP (Zhang et al. 2024): the server trains class prototypes that keep apart what clients send."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Mean, Method, Params, Personal, Private, ServerRule, State, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core import seeds
from raffed.core.context import Context, Forward, ServerContext, Spec
from raffed.core.losses import distance, one_hot
from raffed.methods.common import Prototypes, class_sums
from raffed.methods.fedproto import by_prototype, prototype_pull
from raffed.methods.solo import PRIVATE


class OwnPrototypes(Wire):
    """Class means [C, D] of one client's features, and held [C] bool, which classes it has."""

    mean: Tensor
    held: Tensor


class GeneratedPrototypes(Personal[None, OwnPrototypes, Prototypes]):
    """λ ‖z − P_y‖²/D as the mean over samples; the client predicts by the nearest P.

    P are the server's prototypes, of the classes that any client has ever sent. A class without one pulls
    nothing and is never predicted. Before the first round ends the client's own classifier predicts. A client
    sends class means of its trained model in evaluation mode.
    """

    lam: float

    predicts = True

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context[None, Prototypes]) -> Tensor:
        return self.lam * prototype_pull(f.z, f.y, k.server.mean, k.server.known)

    def finish(self, k: Context) -> tuple[None, OwnPrototypes]:
        sums = class_sums(k, k.state)
        return None, OwnPrototypes(sums.total / sums.count.clamp(min=1)[:, None], sums.count > 0)

    def model(self, k: Context) -> State:
        return k.state

    def predict(self, x: Tensor, k: Context) -> Tensor:
        return by_prototype(x, k)


class PrototypeGenerator(Private):
    """The trained map from classes to prototypes, and known [C], the classes that were ever sent.

    Its parameters are embedding [C, D], hidden.weight [D, D], hidden.bias [D], out.weight [D, D] and
    out.bias [D].
    """

    net: Params
    known: Tensor


class PrototypeTraining(ServerRule[PrototypeGenerator | None]):
    """P = out(relu(hidden(embedding))), trained by SGD on −log softmax_c(−(‖Q − P_c‖ + δ [c = y])).

    Q are all class means that the round's clients have sent, in batches of `batch`, `epochs` times. δ is
    `margin_of` the round. The map goes on from round to round.
    """

    epochs: int
    lr: float
    batch: int
    margin: float

    on_device: ClassVar[bool] = True

    def step(
        self, own: PrototypeGenerator | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[PrototypeGenerator, Params]:
        sent = [message for message in k.received["personal"].each if isinstance(message, OwnPrototypes)]
        held = torch.stack([message.held for message in sent])
        q, y = torch.stack([message.mean for message in sent])[held], held.nonzero()[:, 1]
        fresh = seeds.generator(k.run_seed, "server", 0, 0, 1)
        net = own.net if own else new_generator(k.spec, fresh).to(q.device)
        delta = margin_of(q, y, k.spec.num_classes, self.margin)
        draws = seeds.generator(k.run_seed, "server", k.round)
        for _ in range(self.epochs):
            for index in torch.split(torch.randperm(len(y), generator=draws).to(y.device), self.batch):
                live = {name: t.detach().requires_grad_() for name, t in net.tensors.items()}
                value = separation(q[index], y[index], prototypes(Params(live)), delta)
                grads = torch.autograd.grad(value, list(live.values()))
                net = Params(
                    {n: t.detach() - self.lr * g for (n, t), g in zip(live.items(), grads, strict=True)}
                )
        known = held.any(0) if own is None else own.known | held.any(0)
        return PrototypeGenerator(net.clone(), known), mean

    def extra_broadcast(self, own: PrototypeGenerator | None) -> dict[str, Wire]:
        if own is None:
            return {}
        return {"personal": Prototypes(prototypes(own.net).clone(), own.known.clone())}


def new_generator(spec: Spec, draws: torch.Generator) -> Params:
    """The map before training: N(0, 1) for the embedding, torch's uniform ±1/√D for the linear layers."""
    c, d = spec.num_classes, spec.feature_dim
    shapes = {"hidden.weight": (d, d), "hidden.bias": (d,), "out.weight": (d, d), "out.bias": (d,)}
    layers = {n: (2 * torch.rand(shape, generator=draws) - 1) / d**0.5 for n, shape in shapes.items()}
    return Params({"embedding": torch.randn(c, d, generator=draws), **layers})


def prototypes(net: Params) -> Tensor:
    """P [C, D] of a generator's parameters."""
    hidden = (net["embedding"] @ net["hidden.weight"].T + net["hidden.bias"]).relu()
    return hidden @ net["out.weight"].T + net["out.bias"]


def separation(q: Tensor, y: Tensor, p: Tensor, delta: float) -> Tensor:
    """Cross-entropy [] of −(‖q − P_c‖ + δ [c = y]) for rows q [B, D] of the classes y [B]."""
    apart = distance(q, p) + delta * one_hot(y, len(p)).to(q.dtype)
    return F.cross_entropy(-apart, y)


def margin_of(q: Tensor, y: Tensor, classes: int, largest: float) -> float:
    """δ = min(max_c min_{c' ≠ c} ‖Q̄_c − Q̄_c'‖, largest) over the classes of the rows q [n, D].

    Q̄_c is the mean of the rows of class c. With one class alone δ is `largest`.
    """
    label = one_hot(y, classes).to(q.dtype)
    count = label.sum(0)
    mean = (label.T @ q / count.clamp(min=1)[:, None])[count > 0]
    if len(mean) < 2:
        return largest
    gaps = torch.cdist(mean, mean).fill_diagonal_(float("inf"))
    return min(float(gaps.min(1).values.max()), largest)


@checked
def fedtgp(
    lam: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the pull to the prototypes; 0 is SOLO.")
    ] = 10.0,
    server_epochs: Annotated[int, Range(0), Doc("Epochs a round in which the server trains.")] = 100,
    server_lr: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("Learning rate of the server's SGD.")
    ] = 0.01,
    batch_size: Annotated[int, Range(1), Doc("Class means in a batch of the server.")] = 10,
    margin: Annotated[float, Range(0.0, 1e6), Doc("Largest margin δ; 0: without a margin.")] = 100.0,
) -> Method:
    """FedTGP: clients share class means and no weights, and the server trains prototypes that are far apart.

    Equation:
        CE + λ mean ‖z − P_y‖²/D (`GeneratedPrototypes`). The server minimises the cross-entropy of
        −(‖Q − P_c‖ + δ [c = y]) over the received class means Q (`PrototypeTraining`). Every client keeps its
        whole model and is scored by the nearest prototype.

    Source:
        Zhang et al. 2024. λ = 10, 100 epochs, batches of 10 and a margin of at most 100 are the official
        script's; its server has the clients' rate, 0.01.

    The authors' runs: batches of 10 in the order of the data, without the short last one of an epoch
    (`--drop-last`), which their class means leave out as well.

    Departures: prototypes of classes that nobody has sent pull nothing and are never predicted, where the
    official code takes the untrained map's. All clients have networks of one architecture. The official code
    computes a distance as the root of an expanded square, which rounding can make NaN; here it is the root of
    the sum of squares plus 1e-12. After a round a client is scored by the prototypes that it had downloaded;
    the official code scores it by the newest, as a survey between rounds does (metric accuracy_between).
    """
    if not lam:
        return Method("FedTGP", split=PRIVATE, mean=Mean(by="clients"))
    return Method(
        "FedTGP",
        split=PRIVATE,
        personal=GeneratedPrototypes(lam),
        mean=Mean(by="clients"),
        server=PrototypeTraining(server_epochs, server_lr, batch_size, margin),
    )

"""FedFomo (Zhang et al. 2021): each client moves towards the models of others that do better on its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Mean, Method, Params, Private, ServerContext, ServerRule, Spec, State, Wire
from raffed.config.validation import Doc, Range, checked
from raffed.core import seeds
from raffed.core.ingredients import Opening
from raffed.core.params import Record
from raffed.core.server import ListedModels, Lists, with_rows
from raffed.methods.common import Scored
from raffed.methods.ifca import loss_over
from raffed.methods.solo import PRIVATE

Norm = Literal["l2", "l1"]
Judge = Literal["val", "train"]


class LastStart(Private):
    """θ^old, the model with which a client began its last training."""

    old: State


class JudgedModel(Wire):
    """A client's trained model, and its ω for every client [N], 0 for those that it has not judged."""

    w: Params
    b: Params
    omega: Tensor


class Judged(Record):
    """The mixture with which a client begins, and its ω."""

    model: State
    omega: Tensor


class FirstOrderMixture(Opening[Judged, LastStart, JudgedModel, ListedModels | None]):
    """θ_i ← θ^old + Σ ω̄_n (θ_n − θ^old), ω̄ = relu(ω)/Σ relu(ω), with the ω of `preferences`.

    The θ_n are the client's own trained model and those that it has downloaded. If no ω is positive, the
    client begins with θ^old.

    Attributes:
        norm: Norm by which ω is divided.
        judge: Samples on which losses are taken.
    """

    norm: Norm
    judge: Judge

    @property
    def needs_held_out(self) -> bool:
        return self.judge == "val"

    def client_init(self, k: Context) -> LastStart:
        return LastStart(k.start)

    def begin(self, k: Context[LastStart, ListedModels | None]) -> Judged:
        models, who = [k.start], [k.client]
        if k.server is not None:
            for number, w, b in zip(k.server.number.tolist(), k.server.w, k.server.b, strict=True):
                if number:
                    models.append(State(point_of(w, k.start.w), point_of(b, k.start.b)))
                    who.append(number - 1)
        old = k.mine.old
        distances = [distance(m.w, old.w, self.norm) for m in models]
        omega = preferences(self.mean_loss(k, old), [self.mean_loss(k, m) for m in models], distances)
        told = torch.zeros(k.spec.everyone)
        told[who] = omega.to(told.dtype)
        return Judged(mixed(old, models, omega), told)

    def mean_loss(self, k: Context, state: State) -> float:
        """Return the mean loss in evaluation mode."""
        batches = k.held_out if self.judge == "val" and k.held_out else k.features
        return loss_over(k, state, batches(state))

    def end(self, carried: Judged) -> State:
        return carried.model

    def finish(self, k: Context[LastStart]) -> tuple[LastStart, JudgedModel]:
        assert isinstance(k.carried, Judged)
        return LastStart(k.start), JudgedModel(k.w.clone(), k.state.b.clone(), k.carried.omega)


def vector_of(point: Params) -> Tensor:
    """Return all numbers of a point, tensor after tensor [P]."""
    return torch.cat([torch.zeros(0), *(tensor.flatten() for tensor in point.tensors.values())])


def point_of(vector: Tensor, like: Params) -> Params:
    """Return the point of a vector [P], with the names and shapes of `like`."""
    parts = torch.split(vector, [tensor.numel() for tensor in like.tensors.values()])
    pairs = zip(like.tensors.items(), parts, strict=True)
    return Params({name: part.view(tensor.shape) for (name, tensor), part in pairs}).clone()


def distance(a: Params, b: Params, norm: Norm) -> float:
    """Return ‖a − b‖, the Euclidean norm (l2) or the sum of the differences (l1) over all weights."""
    gap = a.flat.double() - b.flat.double()
    return float(gap.abs().sum() if norm == "l1" else gap.norm())


def preferences(old: float, losses: Sequence[float], distances: Sequence[float]) -> Tensor:
    """Return ω_n = (L(θ^old) − L(θ_n))/‖θ_n − θ^old‖ [n], float64; 0 for a model that is θ^old.

    Args:
        old: L(θ^old).
        losses: The L(θ_n).
        distances: The ‖θ_n − θ^old‖.
    """
    pairs = zip(losses, distances, strict=True)
    return torch.tensor([(old - loss) / gap if gap else 0.0 for loss, gap in pairs], dtype=torch.float64)


def mixed(old: State, models: Sequence[State], omega: Tensor) -> State:
    """Return Σ ω̄_n θ_n, which is θ^old + Σ ω̄_n (θ_n − θ^old), or θ^old if no ω is positive."""
    positive = omega.clamp(min=0.0)
    if not positive.any():
        return old
    shares = (positive / positive.sum()).tolist()
    first, *others = (model * share for model, share in zip(models, shares, strict=True) if share)
    total: State = sum(others, first)
    return total


class Peers(Lists):
    """The lists, and what they are made from.

    Attributes:
        known: Clients that have uploaded [N], bool.
        preference: P [N, N], float64.
    """

    known: Tensor
    preference: Tensor


class PreferredPeers(ServerRule[Peers | None]):
    """P_i += ω_i for the clients that took part. Client i gets the models of the M largest P_i of others.

    With the probability max(0, ε − decay · t), t the number of the round, a place goes to a random one.

    Attributes:
        count: M.
        explore: ε.
        decay: What it loses in a round.
        scaled: Whether ω_i is divided by |Σ ω_i|.
    """

    count: int
    explore: float
    decay: float
    scaled: bool

    def table_size(self, w: Params, spec: Spec) -> int:
        return spec.everyone * (w.layout.size + spec.everyone)

    def step(self, own: Peers | None, w: Params, mean: Params, k: ServerContext) -> tuple[Peers, Params]:
        received, everyone = k.received["opening"], k.spec.everyone
        sent = [message for message in received.each if isinstance(message, JudgedModel)]

        def updated(before: Tensor | None, rows: Sequence[Tensor]) -> Tensor:
            return with_rows(before, everyone, received.clients, rows)

        old = own.preference if own else torch.zeros(everyone, everyone, dtype=torch.float64)
        omega = [message.omega.double() for message in sent]
        if self.scaled:
            omega = [row / scale(float(row.sum())) for row in omega]
        preference = updated(old, [old[i] + row for i, row in zip(received.clients, omega, strict=True)])
        known = updated(own.known if own else None, [torch.tensor(True)] * len(sent))
        rows = updated(own.rows if own else None, [vector_of(message.w) for message in sent])
        statistics = updated(own.statistics if own else None, [vector_of(message.b) for message in sent])
        chance = max(0.0, self.explore - self.decay * k.round)
        streams = [seeds.generator(k.run_seed, "peers", k.round, i) for i in range(everyone)]
        chosen = [peers(preference[i], known, i, self.count, chance, rng) for i, rng in enumerate(streams)]
        return Peers(rows, statistics, torch.stack(chosen), known, preference), mean


def scale(total: float) -> float:
    """Return |Σ ω|, as in the code, which adds 1e-9 if it is smaller than that."""
    return abs(total) if abs(total) >= 1e-9 else abs(total) + 1e-9


def peers(
    preference: Tensor, known: Tensor, client: int, count: int, chance: float, stream: torch.Generator
) -> Tensor:
    """Return the clients whose models a client gets [M], int64; −1 where none is left.

    Args:
        preference: P_i [N].
        known: Clients that have uploaded [N], bool.
        client: i, which never gets its own model.
        count: M.
        chance: Probability that a place goes to a random client.
        stream: The random stream, which also decides between equal preferences.
    """
    others = [i for i in known.nonzero().flatten().tolist() if i != client]
    first, second = (torch.randperm(len(others), generator=stream).tolist() for _ in range(2))
    best = sorted((others[i] for i in first), key=lambda peer: -float(preference[peer]))
    drawn, chosen = [others[i] for i in second], list[int]()
    explored = torch.rand(count, generator=stream) < chance
    for random in explored.tolist()[: len(others)]:
        chosen.append(next(peer for peer in (drawn if random else best) if peer not in chosen))
    return torch.tensor([*chosen, *[-1] * (count - len(chosen))], dtype=torch.int64)


@checked
def fedfomo(
    models: Annotated[
        int, Range(0, 1000), Doc("M, number of models of others that a client gets; 0 is local training.")
    ] = 5,
    explore: Annotated[
        float, Range(0.0, 1.0), Doc("ε, probability that a place in a client's list goes to a random client.")
    ] = 0.3,
    explore_decay: Annotated[float, Range(0.0, 1.0), Doc("What ε loses in a round, until it is 0.")] = 0.05,
    norm: Annotated[
        Norm, Doc("Norm of θ_n − θ^old in ω: Euclidean (l2), or the sum of all differences (l1).")
    ] = "l2",
    judge: Annotated[
        Judge,
        Doc("By what clients judge models: their part of data.validation, if any, or training samples."),
    ] = "val",
    scaled: Annotated[
        bool, Doc("Whether the server divides a client's ω by |Σω| before it adds them up, as the code does.")
    ] = False,
) -> Method:
    """FedFomo: each client moves towards the models of others that do better on its validation samples.

    Equation:
        ω_n = (L_i(θ^old) − L_i(θ_n))/‖θ_n − θ^old‖, ω̄ = relu(ω)/Σ relu(ω), θ_i ← θ^old + Σ ω̄_n (θ_n − θ^old)
        (`FirstOrderMixture`), then local training. θ^old is the model with which the client began its last
        training, and its own trained model is one of the θ_n. The server keeps P_i += ω, and sends the models
        of the M largest (`PreferredPeers`). A client sends its model and one ω for each client.

    Source:
        Zhang, Sapra, Fidler, Yeung and Alvarez, ICLR 2021, arXiv 2012.08565, and its code (NVlabs/FedFomo at
        fe04f66): M 4 or 9 of 15 clients, ε 0.3 minus 0.05, five epochs, rate 0.1 times 0.99 for each epoch,
        no momentum, batches of 50, weight decay 1e-4, a fifth of the samples held out.

    Scored: the model after local training; between rounds the mixture.

    Where the paper and the code differ: the code divides ω by |Σω| before it adds it to P, which grows
    without bound where the sum is near 0 (`scaled`), and its norm is by default l1. Its l2 is the squared
    norm, and its l2_root the sum of the norms of all tensors. The defaults are the equations.

    Departures: exploration decays by rounds; in the code it decays by local epochs, so that it is over after
    one or two rounds, and the generator begins anew in every round, so that it repeats. A client's preference
    for itself begins at 0, in the code at 0.1; no list depends on it. The code's means of clusters of clients
    as further candidates are left out. A client of one sample has no validation part, so its training sample
    judges. BatchNorm's statistics are mixed with the weights.
    Validation samples are part of the method, so its validation scores are not those of unused samples.
    Only tens of clients are sensible: the server holds all models, and a client makes M + 2 passes.
    """
    if not models:
        return Method("FedFomo", split=PRIVATE, personal=Scored("trained"), mean=Mean(by="clients"))
    return Method(
        "FedFomo",
        split=PRIVATE,
        opening=FirstOrderMixture(norm, judge),
        personal=Scored("trained"),
        mean=Mean(by="clients"),
        server=PreferredPeers(models, explore, explore_decay, scaled),
    )

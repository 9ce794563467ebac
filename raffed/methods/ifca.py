"""IFCA (Ghosh et al. 2020): K models, of which each client trains the one with the smallest loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Mean, Method, Params, Private, ServerRule, State, Wire
from raffed.config.validation import Doc, Range, checked
from raffed.core import seeds
from raffed.core.context import NOTHING, Context, ServerContext, Spec
from raffed.core.ingredients import Opening
from raffed.core.losses import one_hot
from raffed.core.params import Record, redrawn
from raffed.core.parts import in_part
from raffed.methods.common import Scored
from raffed.methods.fedopt import MeanWeights

Part = Literal["all", "head"]


class ClusterModel(Wire):
    """A model of a cluster: its part w of the weights, and BatchNorm's statistics b, if it has its own."""

    w: Params
    b: Params


class ClusterModels(Wire):
    """The models of the clusters 1, 2, …, by number. That of cluster 0 is the server's."""

    models: dict[str, ClusterModel]


class ClusterBank(Private):
    """The same at the server, which sends it to the slot that reads it."""

    models: ClusterModels


class ClusterChoice(Record):
    """A model, and the number of its cluster."""

    model: State
    cluster: int


def of_part(w: Params, part: Part) -> Params:
    return w.only(name for name in w.names if in_part(name, part))


def first_models(w: Params, clusters: int, redraw: int, run_seed: int) -> list[Params]:
    """Return the first models of the clusters 1, 2, … of the part w of the first model of cluster 0."""
    draws = (seeds.generator(run_seed, "models", redraw, number) for number in range(1, clusters))
    return [redrawn(w, generator) for generator in draws]


class SmallestLoss(Opening[ClusterChoice, None, None, ClusterModels]):
    """Begins with the model that has the smallest mean loss on the client's training samples.

    Of equal ones it is the first. Losses are taken in evaluation mode, with each cluster's own statistics, on
    images that are not augmented. The client's share of the column of that model is 1.

    Attributes:
        clusters: K.
        part: Part of the network of which there are K.
        redraw: Which first models are drawn.
    """

    clusters: int
    part: Part
    redraw: int

    def server_init(self, w: Params, spec: Spec) -> ClusterModels:
        models = first_models(of_part(w, self.part), self.clusters, self.redraw, spec.run_seed)
        return ClusterModels({str(j): ClusterModel(model, NOTHING) for j, model in enumerate(models, 1)})

    def begin(self, k: Context[None, ClusterModels]) -> ClusterChoice:
        models = downloaded_models(k)
        losses = [mean_loss(k, model) for model in models]
        best = losses.index(min(losses))
        return ClusterChoice(models[best], best)

    def end(self, carried: ClusterChoice) -> State:
        return carried.model

    def shares(self, k: Context) -> Tensor:
        assert isinstance(k.carried, ClusterChoice)
        return one_hot(torch.tensor([k.carried.cluster]), self.clusters)[0]


def downloaded_models(k: Context[None, ClusterModels]) -> list[State]:
    """Return all models that a client has downloaded, each completed by what it shares with the first."""
    others = [k.server.models[str(j)] for j in range(1, len(k.server.models) + 1)]
    names = k.start.w.names
    return [
        k.start,
        *(State(k.start.w.joined(m.w, names), m.b if len(m.b) else k.start.b) for m in others),
    ]


def mean_loss(k: Context, state: State) -> float:
    """Return the mean of the run's loss over the training samples, with the head as a linear layer."""
    return loss_over(k, state, k.features(state))


def loss_over(k: Context, state: State, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the mean of the run's loss over batches of features [B, D] and labels [B]."""
    bias, total, count = state.w.tensors.get("head.bias"), 0.0, 0
    for z, y in batches:
        total += len(y) * float(k.loss_of(F.linear(z, state.w["head.weight"], bias), y, smooth=False))
        count += len(y)
    return total / count


class ClusterMeans(ServerRule[ClusterBank | None]):
    """Each model becomes the mean of the uploads of the clients that chose it; one without clients stays."""

    clusters: int
    part: Part
    redraw: int

    has_global: ClassVar[bool] = False

    def table_size(self, w: Params, spec: Spec) -> int:
        return self.clusters * w.layout.size

    def step(
        self, own: ClusterBank | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[ClusterBank, Params]:
        old, new = held_models(own, of_part(w, self.part), self.clusters, self.redraw, k), []
        for before, column in zip(old, k.received["server"].columns, strict=True):
            weights = before.w if column is None else of_part(column.w, self.part)
            statistics = before.b if column is None else column.b
            new.append(ClusterModel(weights, statistics if self.part == "all" else NOTHING))
        return bank_of(new), mean.joined(new[0].w, mean.names)

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        first = k.received["server"].columns[0]
        return mean if self.part == "head" else b if first is None else first.b

    def extra_broadcast(self, own: ClusterBank | None) -> dict[str, Wire]:
        return {} if own is None else {"opening": own.models}


def held_models(
    bank: ClusterBank | None, w: Params, clusters: int, redraw: int, k: ServerContext
) -> list[ClusterModel]:
    """Return the models of all clusters before the step of a server's rule.

    Args:
        bank: The rule's memory, or None in the first round.
        w: The weights of cluster 0, or the part of them of which there are several.
        clusters: K.
        redraw: Which first models are drawn.
        k: What the server knows.
    """
    if bank is None:
        begun = first_models(w, clusters, redraw, k.run_seed)
        others = [ClusterModel(model, k.sent_b) for model in begun]
    else:
        others = [bank.models.models[str(j)] for j in range(1, clusters)]
    return [ClusterModel(w, k.sent_b), *others]


def bank_of(models: Sequence[ClusterModel]) -> ClusterBank:
    """Return the memory of the models of all clusters. That of cluster 0 is the server's own."""
    return ClusterBank(ClusterModels({str(j): model for j, model in enumerate(models) if j}))


@checked
def ifca(
    clusters: Annotated[int, Range(1, 100), Doc("K, number of models; 1 is FedAvg.")] = 4,
    weighting: MeanWeights = "clients",
    share: Annotated[
        Part, Doc("Part of the network of which there are K: all of it, or the output layer (head).")
    ] = "all",
    redraw: Annotated[int, Range(0), Doc("Which first models are drawn.")] = 0,
) -> Method:
    """IFCA: the server keeps K models, and each client trains the one with the smallest loss on its own data.

    Equation:
        A client downloads θ_1, …, θ_K and starts from θ_ĵ, ĵ = argmin_j F_i(θ_j) (`SmallestLoss`). θ_j
        becomes the mean of the uploads of its clients (`ClusterMeans`). A client sends its model, ĵ as K
        shares, and n_k if means are weighted by samples.

    Source:
        Ghosh, Chung, Yin and Ramchandran, NeurIPS 2020, arXiv 2006.04088, and its code (jichan3751/ifca at
        61e44b8): K 4 on MNIST, ten full-batch steps of rate 0.1 by all clients in each of 300 rounds; K 2 on
        CIFAR-10. Means are uniform in the code, and `weighting = "samples"` is n_k / Σ n of the cluster.

    Scored: the chosen model before training. After a round these are the models that were downloaded, and in
    a survey between rounds the newest, as in the code.

    The K first models differ, because equal ones would never separate: one is the run's, and the others have
    its numbers in another order, tensor by tensor (`redrawn`). So a head that is not drawn at random, such as
    head_init = "etf", is destroyed in them. Whether clusters separate depends on the first models; `redraw`
    gives others, of which a validation part can choose.

    Departures: a client that is only scored chooses by its training samples, where the code chooses by the
    test samples and their labels. The code for CIFAR-10 draws first models again until every cluster has its
    share of clients, and chooses on augmented images.
    """
    return Method(
        "IFCA",
        opening=SmallestLoss(clusters, share, redraw),
        personal=Scored("downloaded"),
        mean=Mean(by=weighting, fixed=True),  # the means of the clusters have the same weights
        server=ClusterMeans(clusters, share, redraw),
    )

"""cwFedAvg (Lee & Choi 2025): a model for each class, mixed for each client by the norms of its head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from raffed import (
    Context,
    Forward,
    Ingredient,
    Mean,
    Method,
    Mixtures,
    Params,
    ServerRule,
    Term,
    Upload,
    Wire,
)
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import ServerContext, Spec
from raffed.core.parts import in_part
from raffed.core.server import mixture, with_rows
from raffed.methods.common import Scored

Mixed = Literal["head", "all"]
Shares = Literal["norms", "counts"]
WEIGHT = "head.weight"


def norm_shares(weight: Tensor) -> Tensor:
    """Return p̃ [C]: the norms of the rows of a head's weight [C, D], divided by their sum."""
    norms = (weight.square().sum(1) + 1e-24).sqrt()  # a row of 0 has a gradient, too
    return norms / norms.sum()


class WeightDistribution(Term):
    """(λ/2) ‖p − p̃‖₂, p the client's class shares and p̃ the `norm_shares` of the trained head.

    It is the norm and not its square. 1e-12 is added under the root, so that it has a gradient at p = p̃.
    """

    lam: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.lam / 2 * distance_of_shares(f.w[WEIGHT], k.class_counts)


def distance_of_shares(weight: Tensor, class_counts: Tensor) -> Tensor:
    """Return ‖p − p̃‖₂ [] of a head's weight [C, D] and class counts [C]."""
    shares = class_counts.to(weight.dtype) / class_counts.sum()
    return ((shares - norm_shares(weight)).square().sum() + 1e-12).sqrt()


class ClassShares(Wire):
    """A client's class shares [C]."""

    shares: Tensor


class TellsShares(Ingredient[None, ClassShares]):
    """Sends the class shares, which the server would otherwise read from the head."""

    def finish(self, k: Context) -> tuple[None, ClassShares]:
        return None, ClassShares(k.class_counts.to(torch.float32) / k.class_counts.sum())


class ClassWiseMean(ServerRule[Mixtures | None]):
    """θ_c = Σ_k q_kc w_k, q_kc = p_k p̃_kc / Σ_j p_j p̃_jc; client k downloads Σ_c p̃_kc θ_c.

    p_k are FedAvg's weights, p̃_k the `norm_shares` of client k's last upload, or what it sent
    (`ClassShares`). A class of which no participant has a share keeps its model.
    """

    part: Mixed

    each: ClassVar[bool] = True

    def table_size(self, w: Params, spec: Spec) -> int:
        return spec.num_classes * self._part(w).layout.size + spec.everyone * spec.num_classes

    def _part(self, w: Params) -> Params:
        return w.only(name for name in w.names if in_part(name, self.part))

    def step(
        self, own: Mixtures | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Mixtures, Params]:
        sent, clients = k.uploads, k.received["server"].clients
        shares = torch.stack([shares_of(upload) for upload in sent])
        p = torch.tensor(Mean().weights([upload.n or 0 for upload in sent]), dtype=torch.float64)
        q, everyone, statistics = class_weights(p, shares), k.spec.everyone, None
        if self.part == "all" and len(k.b):
            statistics = class_models([upload.b for upload in sent], q, k.b, own.statistics if own else None)
        return Mixtures(
            class_models([self._part(u.w) for u in sent], q, self._part(mean), own.rows if own else None),
            with_rows(own.shares if own else None, everyone, clients, shares.unbind()),
            with_rows(own.known if own else None, everyone, clients, [torch.tensor(True)] * len(sent)),
            statistics,
            self.part,
        ), mean


def shares_of(upload: Upload) -> Tensor:
    """Return p̃ [C], float64, of an upload."""
    told = upload.slots.get("message")
    if isinstance(told, ClassShares):
        return told.shares.to(torch.float64) / told.shares.to(torch.float64).sum()
    return norm_shares(upload.w[WEIGHT].to(torch.float64))


def class_weights(p: Tensor, shares: Tensor) -> Tensor:
    """Return q [C, K] with rows that add up to 1, or are 0 where nobody has a share of the class.

    Args:
        p: Weights [K] of the clients, float64.
        shares: Their shares p̃ [K, C], float64.
    """
    weighted = (p[:, None] * shares).T
    return weighted / weighted.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def class_models(points: Sequence[Params], q: Tensor, mean: Params, before: Tensor | None) -> Tensor:
    """Return the class models [C, P] as flat buffers.

    Args:
        points: The uploads [K].
        q: `class_weights` [C, K].
        mean: The model of a class that nobody has had a share of so far.
        before: The class models before, or None.
    """
    last = mean.flat.expand(len(q), -1) if before is None else before
    models = [mixture(points, row.tolist(), mean).flat if row.any() else last[c] for c, row in enumerate(q)]
    return torch.stack(models)


@checked
def cwfedavg(
    wdr: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the regulariser of the head; 0 leaves it out.")
    ] = 10.0,
    part: Annotated[
        Mixed, Doc("What is averaged by classes: the whole network (all), or the output layer alone (head).")
    ] = "all",
    shares: Annotated[
        Shares,
        Doc("Shares p̃: norms of the head's rows (norms), or the class shares, which clients send (counts)."),
    ] = "norms",
) -> Method:
    """cwFedAvg: the server keeps a model for each class, and each client downloads its own mixture of them.

    Equation:
        CE + (λ/2) ‖p_k − p̃_k‖₂ (`WeightDistribution`), p̃_k the shares of the norms of the head's rows;
        class models θ_c = Σ_k q_kc w_k; client k starts from Σ_c p̃_kc θ_c (`ClassWiseMean`). A client sends
        nothing but its weights and n_k. The mean of all mixtures by samples is FedAvg's mean, which is scored
        as the global model.

    Source:
        Lee and Choi, ICCV 2025, arXiv 2406.07800, and its code (regulationLee/cwFedAvg at 59ed9c1): λ 10,
        rate 0.005, 20 clients that all take part. The code averages either the whole network or the last
        layer by classes; the default here is the paper's, the whole network. Its switch use_true_dist is
        `shares = "counts"`.

    Scored: the mixture as downloaded, before local training, as in the code, which prints the best round on
    test data.

    Departures: BatchNorm's statistics are mixed with the weights; in the code they stay with their client. A
    client that did not take part keeps its last shares, where the code needs all clients in every round.
    """
    return Method(
        "cwFedAvg",
        terms=(WeightDistribution(wdr),) if wdr else (),
        message=TellsShares() if shares == "counts" else None,
        personal=Scored("downloaded"),
        mean=Mean(fixed=True),  # the class models have the same weights
        server=ClassWiseMean(part),
    )

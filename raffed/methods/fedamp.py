"""FedAMP and HeurFedAMP (Huang et al. 2021): each client downloads a mixture of models like its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from raffed import Mean, Method, Mixtures, Params, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import ServerContext, Spec
from raffed.core.server import with_rows
from raffed.errors import UsageError
from raffed.methods.common import Scored
from raffed.methods.fedprox import Proximal

Shares = Literal["cosine", "distance", "relative"]


class MixedUploads(ServerRule[Mixtures | None]):
    """u_i = Σ_j ξ_ij w_j, w_j the last upload of client j, of all that have ever uploaded."""

    each: ClassVar[bool] = True

    def table_size(self, w: Params, spec: Spec) -> int:
        return spec.everyone * (w.layout.size + spec.everyone)

    def shares(self, models: Tensor) -> Tensor:
        """Return ξ [K, K], float64, of models [K, P]."""
        raise NotImplementedError

    def step(
        self, own: Mixtures | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Mixtures, Params]:
        sent, clients, everyone = k.uploads, k.received["server"].clients, k.spec.everyone
        rows = with_rows(own.rows if own else None, everyone, clients, [upload.w.flat for upload in sent])
        statistics = with_rows(
            own.statistics if own else None, everyone, clients, [upload.b.flat for upload in sent]
        )
        known = with_rows(own.known if own else None, everyone, clients, [torch.tensor(True)] * len(sent))
        shares = torch.zeros(everyone, everyone, dtype=torch.float64)
        shares[known.nonzero(), known] = self.shares(rows[known])
        return Mixtures(rows, shares, known, statistics if len(k.b) else None), mean


class AttentiveMixing(MixedUploads):
    """ξ_ij = (α/σ) e^{−‖w_i − w_j‖²/σ} for j ≠ i, and ξ_ii = 1 − Σ_{j≠i} ξ_ij.

    ξ is symmetric, so the uniform mean of all u_i is that of all w_i.

    Attributes:
        alpha: α.
        sigma: σ.
        relative: Whether α and σ are multiples of the mean of ‖w_i − w_j‖² over all pairs.
    """

    alpha: float
    sigma: float
    relative: bool = False

    def table_size(self, w: Params, spec: Spec) -> int:
        most = self.sigma / max(spec.everyone - 1, 1)
        if self.alpha > most:
            raise UsageError(
                f"fedamp: alpha = {self.alpha:g} with sigma = {self.sigma:g} would give clients negative "
                f"shares of their own models; with {spec.everyone} clients alpha must be at most {most:.4g}"
            )
        return super().table_size(w, spec)

    def shares(self, models: Tensor) -> Tensor:
        squares = between(models, lambda a, b: (a - b).square().sum())
        pairs = len(models) * (len(models) - 1)
        unit = float(squares.sum()) / pairs if self.relative and pairs else 1.0
        xi = self.alpha / self.sigma * torch.exp(-squares / (self.sigma * (unit or 1.0)))
        xi.fill_diagonal_(0.0)
        return xi + torch.diag((1.0 - xi.sum(1)).clamp(min=0.0))


class HeuristicMixing(MixedUploads):
    """ξ_ij = (1 − ξ_ii) e^{σ cos(w_i, w_j)} / Σ_{h≠i} e^{σ cos(w_i, w_h)} with a fixed ξ_ii.

    Attributes:
        sigma: σ.
        self_weight: ξ_ii; 0: 1/K of the K clients that have ever uploaded.
    """

    sigma: float
    self_weight: float = 0.0

    has_global: ClassVar[bool] = False  # ξ is not symmetric

    def shares(self, models: Tensor) -> Tensor:
        count = len(models)
        if count == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        kept = self.self_weight or 1.0 / count
        cosines = between(models, lambda a, b: torch.cosine_similarity(a, b, dim=0))
        others = (self.sigma * cosines).fill_diagonal_(-torch.inf).softmax(1)
        return (1.0 - kept) * others + kept * torch.eye(count, dtype=torch.float64)


def between(models: Tensor, measure: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return a symmetric measure [K, K] of all pairs of models [K, P], in float64. Its diagonal is 0."""
    measured = torch.zeros(len(models), len(models), dtype=torch.float64)
    for i, j in itertools.combinations(range(len(models)), 2):
        measured[i, j] = measured[j, i] = measure(models[i].double(), models[j].double())
    return measured


@checked
def fedamp(
    shares: Annotated[
        Shares,
        Doc(
            "How ξ is made: by cosines (HeurFedAMP), by squared distances (FedAMP), or by distances relative "
            "to their mean."
        ),
    ] = "cosine",
    sigma: Annotated[
        float, Range(0.0, 1e12), Doc("σ, factor of the cosines, or scale of the squared distances.")
    ] = 25.0,
    self_weight: Annotated[
        float, Range(0.0, 1.0), Doc("ξ_ii by cosines, a client's share of its own model; 0: 1/N.")
    ] = 0.0,
    alpha: Annotated[
        float, Range(0.0, 1e12), Doc("α by distances, the step towards the others; at most σ/(N − 1).")
    ] = 0.1,
    pull: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ/α, weight of the pull to the download; 0 leaves it out.")
    ] = 1e-4,
) -> Method:
    """FedAMP: each client trains near a mixture of all models, most of those that are like its own.

    Equation:
        f_i(w) + (λ/2α) ‖w − u_i‖² from u_i = Σ_j ξ_ij w_j, with ξ of `HeuristicMixing` or `AttentiveMixing`.
        Clients send their weights alone.

    Source:
        Huang et al., AAAI 2021, arXiv 2007.03797. No code of the authors is known, and the paper's defaults
        could not be read. σ 25, ξ_ii 1/N and λ/α 1e-4 are FLGo's, whose α is 10⁴ and lowered over the rounds.

    Scored: the trained model after a round, and the mixture between rounds.

    The default is HeurFedAMP, the paper's form for networks: cosines do not depend on the number of weights.
    Squared distances grow with it, so σ has to be set for each network, or is taken as a multiple of their
    mean (`shares = "relative"`). α 0.1 keeps ξ_ii at least 0 for up to 251 clients at σ 25. PFLlib's α = σ =
    1 makes it −18 for 20 equal models.

    Departures: training begins at u_i, as in FLGo, which does not clear gradients within a round, so that
    they add up. PFLlib's clients go on with their own models, and its pull has no gradient, so it is local
    training (`solo`). Clients that are absent stay in the mixtures with their last models, where PFLlib has
    those of the round alone. BatchNorm's statistics are mixed with the weights.
    The server keeps a model of every client, so this is a method for tens of clients.

    Raises:
        UsageError: σ is 0 where it divides.
    """
    by_cosine = shares == "cosine"
    if not (by_cosine or sigma):
        raise UsageError(f"fedamp: sigma must be above 0 with shares = {shares!r}, which divides by it")
    rule = AttentiveMixing(alpha, sigma, shares == "relative")
    return Method(
        "FedAMP",
        terms=(Proximal(pull),) if pull else (),
        personal=Scored("trained"),
        mean=Mean(by="clients"),
        server=HeuristicMixing(sigma, self_weight) if by_cosine else rule,
    )

"""FedAWA (Shi et al. 2025): the server learns the weights of the mean from the clients' updates."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from raffed import Mean, Method, Params, Private, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked

Distance = Literal["cosine", "square"]
Start = Literal["shares", "log"]
MeanWith = Literal["before", "after"]
Optimizer = Literal["adam", "sgd"]
BETA1, BETA2, EPSILON = 0.5, 0.999, 1e-8  # of Adam, as in the official code
MOMENTUM, DECAY = 0.9, 5e-4  # of its SGD


class Learned(Private):
    """How far T has been moved from its start, for each client [N] float64. It is empty before round 0."""

    moved: Tensor


class AdaptiveWeights(ServerRule[Learned]):
    """w^{t+1} = Σ π_k w_k, π = softmax(T) over the participants; T takes steps on the loss of `slope`.

    T of a client starts at its share of all samples, n_k/Σ_j n_j ("shares"), or at the logarithm of it
    ("log"), with which π begins at the usual weights of the mean. It is kept by client. `optimizer` begins
    anew in every round, as in the official code, so a single step of Adam moves T by about ±`rate`. π is
    taken as it was before the round's last step ("before"), or after it. All is computed in float64.
    BatchNorm's statistics have the usual weights.
    """

    rate: float
    epochs: int
    optimizer: str = "adam"
    distance: str = "cosine"
    start: str = "shares"
    mean_with: str = "before"

    each: ClassVar[bool] = True

    def init(self, w: Params) -> Learned:
        return Learned(torch.zeros(0, dtype=torch.float64))

    def step(self, own: Learned, w: Params, mean: Params, k: ServerContext) -> tuple[Learned, Params]:
        uploads, who = k.uploads, torch.tensor(k.received["server"].clients)
        everybody = torch.zeros(k.spec.num_clients + len(k.spec.unseen), dtype=torch.float64)
        moved = own.moved if len(own.moved) else everybody
        shares = torch.tensor([upload.n or 0 for upload in uploads], dtype=torch.float64) / k.spec.samples
        first = shares.log() if self.start == "log" else shares
        rows = torch.stack([upload.w.flat.double() for upload in uploads])
        begun = first + moved[who]
        before, after = self.learned(begun, self.distances(rows, w.flat.double(), w.numel()), gram(rows))
        weights = (before if self.mean_with == "before" else after).softmax(0)
        mixed = Params.from_flat(w.layout, (weights @ rows).float())
        return Learned(moved.index_put((who,), after - first)), mixed

    def distances(self, rows: Tensor, w: Tensor, count: int) -> Tensor:
        """Return the distance [K] of each upload [K, P] to w^t [P], both of `count` numbers beside zeros."""
        if self.distance == "square":
            return (rows - w).square().sum(1) / count
        return 1.0 - torch.nn.functional.cosine_similarity(rows, w[None], dim=1, eps=1e-8)

    def learned(self, t: Tensor, distances: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
        """Return T [K] before and after the last of the steps of this round."""
        before, first, second = t, torch.zeros_like(t), torch.zeros_like(t)
        for step in range(1, self.epochs + 1):
            before, g = t, slope(t, distances, products)
            if self.optimizer == "sgd":
                first = MOMENTUM * first + g + DECAY * t
                t = t - self.rate * first
                continue
            first, second = BETA1 * first + (1 - BETA1) * g, BETA2 * second + (1 - BETA2) * g.square()
            root = (second / (1 - BETA2**step)).sqrt() + EPSILON
            t = t - self.rate * (first / (1 - BETA1**step)) / root
        return before, t


def gram(rows: Tensor) -> Tensor:
    """Return the inner products [K, K] of K points, all seen from the first one.

    Distances to a mean do not depend on where they are seen from, and those of equal points are 0 exactly.
    """
    seen = rows - rows[0]
    return seen @ seen.T


def slope(t: Tensor, distances: Tensor, products: Tensor) -> Tensor:
    """Return the gradient in T of Σ_k π_k (c_k + d_k), with π = softmax(T) and d_k = ‖Δ_k − Σ_j π_j Δ_j‖.

    Args:
        t: T [K].
        distances: c_k, the distance of each upload to w^t [K].
        products: Inner products of the updates [K, K] (`gram`), from which d follows. Where d_k is 0, it has
            the gradient 0.
    """
    p = t.softmax(0)
    along = products @ p
    apart = (products.diagonal() - 2 * along + p @ along).clamp(min=0.0).sqrt()
    pull = torch.where(apart > 0, p / apart, 0.0)
    whole = distances + apart + pull.sum() * along - products @ pull
    return p * (whole - p @ whole)


@checked
def fedawa(
    rate: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("Learning rate of the server's optimiser of the weights.")
    ] = 1e-3,
    server_epochs: Annotated[
        int, Range(0, 10_000), Doc("Steps of this optimiser in a round; 0 leaves it out, which is FedAvg.")
    ] = 1,
    optimizer: Annotated[
        Optimizer, Doc("Optimiser of the weights: adam, or sgd with momentum 0.9 and weight decay 5e-4.")
    ] = "adam",
    distance: Annotated[
        Distance,
        Doc("Distance of an upload to w^t: 1 − cos (cosine), or the mean square of the difference (square)."),
    ] = "cosine",
    start: Annotated[
        Start, Doc("Where T starts: at the client's share of all samples (shares), or its logarithm (log).")
    ] = "shares",
    mean_with: Annotated[
        MeanWith, Doc("Weights of the round's mean: those before the round's last step, or after it.")
    ] = "before",
) -> Method:
    """FedAWA: the server learns the weights of the mean, so that they favour updates near the others.

    Equation:
        π = softmax(T); T takes `server_epochs` steps on Σ π_k (1 − cos(w^t, w_k)) + Σ π_k ‖Δ_k − Σ_j π_j
        Δ_j‖; w^{t+1} = Σ π_k w_k (`AdaptiveWeights`). The server needs every upload.

    Source:
        Shi, Zhao, Zhang, Zhou, Guo & Chang, CVPR 2025, arXiv 2503.15842, and the official code
        (ChanglongShi/FedAWA): one step of Adam of rate 1e-3, or of SGD of rate 0.01.

    The authors' runs: 300 rounds, otherwise those of FedLWS.

    The defaults `start` and `mean_with` are those of the official code, which the printed results come from:
    its softmax of shares begins with clients of 1 and 3 samples at 0.378 and 0.622, and with 20 clients at
    practically equal weights, whatever their samples. With `start="log"` they are FedAvg's. Which of the two
    `mean_with` the paper means was not verified.

    Departures: the official code keeps T by the place in the list of participants, which are other clients in
    every round; here it is kept by client. Its factor gamma of the mean is left out.
    """
    if not server_epochs:
        return Method("FedAWA")
    rule = AdaptiveWeights(rate, server_epochs, optimizer, distance, start, mean_with)
    return Method("FedAWA", mean=Mean(fixed=True), server=rule)  # T starts at n_k

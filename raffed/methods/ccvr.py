"""CCVR (Luo et al. 2021): after training, the server retrains the head on features drawn from Gaussians that
are fitted to the clients' features.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Ingredient, Method, Params, Private, ServerContext, ServerRule, Spec, Summable
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core import seeds
from raffed.methods.common import train_head

Covariance = Literal["full", "diagonal", "shared"]
RETRAIN_BATCH = 64
JITTER = 1e-6  # of the mean variance, added to the diagonal before the Cholesky decomposition


class FeatureMoments(Summable):
    """For each class that a client holds: count [C], Σ z total [C, D], and Σ z zᵀ squares [C, D (D + 1)/2],
    the upper triangle row by row, or its diagonal alone [C, D].
    """

    fraction_bits = 24
    rows = "count"

    count: Tensor
    total: Tensor
    squares: Tensor


class PooledMoments(Summable):
    """The same with Σ z zᵀ over all classes together, squares [D (D + 1)/2]."""

    fraction_bits = 24

    count: Tensor
    total: Tensor
    squares: Tensor


Moments = FeatureMoments | PooledMoments


def is_closing(round: int, spec: Spec) -> bool:
    """Return whether a round, counted from 0, is the run's last one."""
    return round >= spec.rounds - 1


class ClosingMoments(Ingredient[None, Moments]):
    """In the last round a client sends moments of its features under w^t, and w^t unchanged.

    The features are those of all its training samples in evaluation mode. Before the last round it sends
    nothing in addition to its weights.
    """

    covariance: Covariance

    def finish(self, k: Context) -> tuple[None, Moments | None]:
        return None, moments(k, self.covariance) if is_closing(k.round, k.spec) else None

    def outgoing(self, w: Params, k: Context) -> Params:
        return k.w0.only(w.names).clone() if is_closing(k.round, k.spec) else w


def moments(k: Context, covariance: Covariance) -> Moments:
    """The moments of a client's features under the model that it has downloaded, summed in float64."""
    classes, width = k.spec.num_classes, k.spec.feature_dim
    total = torch.zeros(classes, width, dtype=torch.float64, device=k.class_counts.device)
    shapes = {"full": (classes, width, width), "diagonal": (classes, width), "shared": (width, width)}
    squares = total.new_zeros(shapes[covariance])
    for features, y in k.features(k.start):
        z = features.to(torch.float64)
        total.index_add_(0, y, z)
        if covariance == "diagonal":
            squares.index_add_(0, y, z.square())
        elif covariance == "shared":
            squares += z.T @ z
        else:
            for label in torch.bincount(y).nonzero()[:, 0].tolist():
                of_class = z[y == label]
                squares[label] += of_class.T @ of_class
    if covariance != "diagonal":
        rows, columns = torch.triu_indices(width, width, device=total.device)
        squares = squares[..., rows, columns]
    kind = PooledMoments if covariance == "shared" else FeatureMoments
    return kind(k.class_counts, total.to(torch.float32), squares.to(torch.float32))


def gaussians(told: Moments) -> tuple[Tensor, Tensor]:
    """Means [C, D] and unbiased covariances [C, D, D], float64, of the features that moments sum up.

    Σ_c = (Σ z zᵀ − Σ z Σ zᵀ/N_c)/(N_c − 1). Pooled moments give one covariance for all classes, with the
    number of samples minus that of classes below. A class of one sample has the mean variance of the
    other classes in every direction, and one without samples has zeros.
    """
    count = told.count.to(torch.float64)[:, None]
    total = told.total.to(torch.float64)
    mean = total / count.clamp(min=1)
    width = total.shape[1]
    squares = told.squares.to(torch.float64)
    whole = torch.diag_embed(squares) if squares.shape == total.shape else _symmetric(squares, width)
    if isinstance(told, PooledMoments):
        within = whole - mean.T @ total
        pooled = within / (count.sum() - (count > 0).sum()).clamp(min=1)
        return mean, pooled.expand(len(mean), width, width)
    between = torch.einsum("ci,cj->cij", mean, total)
    if squares.shape == total.shape:
        between = torch.diag_embed(between.diagonal(dim1=-2, dim2=-1))
    spread = (whole - between) / (count - 1).clamp(min=1)[..., None]
    several = (count > 1)[:, 0]
    variance = spread[several].diagonal(dim1=-2, dim2=-1).mean() if several.any() else torch.tensor(0.0)
    alone = (count == 1)[..., None] * variance * torch.eye(width, dtype=torch.float64)
    return mean, torch.where(several[:, None, None], spread, alone)


def _symmetric(upper: Tensor, width: int) -> Tensor:
    rows, columns = torch.triu_indices(width, width)
    whole = torch.zeros(*upper.shape[:-1], width, width, dtype=upper.dtype)
    whole[..., rows, columns] = upper
    whole[..., columns, rows] = upper
    return whole


def virtual_features(told: Moments, each: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """`each` features [n, D] float32 from the Gaussian of each class that has samples, and their classes."""
    means, covariances = gaussians(told)
    x, y = [], []
    for label in (told.count > 0).nonzero()[:, 0].tolist():
        noise = torch.randn(each, means.shape[1], generator=draws, dtype=torch.float64)
        x.append(means[label] + noise @ _root(covariances[label]).T)
        y.append(torch.full((each,), label))
    return torch.cat(x).to(torch.float32), torch.cat(y)


def _root(covariance: Tensor) -> Tensor:
    """A lower triangular L with L Lᵀ equal to a covariance [D, D] up to JITTER, and more where rounding asks
    for it.
    """
    width = len(covariance)
    jitter = JITTER * float(covariance.diagonal().mean().clamp(min=1e-12))
    while True:
        root, failed = torch.linalg.cholesky_ex(covariance + jitter * torch.eye(width, dtype=torch.float64))
        if not int(failed):
            return torch.as_tensor(root)
        jitter *= 10


class CalibratedHead(Private):
    """The head that is scored: weight [C, D], and bias [C], which is unused where the network has none."""

    weight: Tensor
    bias: Tensor


class HeadCalibration(ServerRule[CalibratedHead | None]):
    """FedAvg's mean until the last round, after which w^t is scored under a retrained head.

    The head goes on from w^t's, by plain SGD in batches of 64 on `virtual` features of every class that
    the last round's participants hold. The body, BatchNorm's statistics and the broadcast head stay w^t's.
    """

    virtual: int
    epochs: int
    lr: float

    acts_last = True

    def step(
        self, own: CalibratedHead | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[CalibratedHead | None, Params]:
        if not is_closing(k.round, k.spec):
            return None, mean
        told = k.received["message"].sum
        assert isinstance(told, FeatureMoments | PooledMoments)
        draws = seeds.generator(k.run_seed, "server", k.round)
        x, y = virtual_features(told, self.virtual, draws)
        biased = "head.bias" in w.names
        bias = w["head.bias"] if biased else torch.zeros(k.spec.num_classes)
        head = train_head(
            w["head.weight"],
            bias,
            x,
            y,
            epochs=self.epochs,
            lr=self.lr,
            batch=RETRAIN_BATCH,
            draws=draws,
            biased=biased,
        )
        return CalibratedHead(*head), w

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return b if is_closing(k.round, k.spec) else mean

    def evaluation_weights(self, own: CalibratedHead | None, w: Params) -> Params:
        if own is None:
            return w
        bias = {"head.bias": own.bias} if "head.bias" in w.names else {}
        return Params({**w.tensors, "head.weight": own.weight, **bias}).clone()


@checked
def ccvr(
    virtual: Annotated[int, Range(1), Doc("M_c, virtual features of each class.")] = 500,
    epochs: Annotated[
        int, Range(0), Doc("Epochs that retrain the head after the last round; 0 is FedAvg.")
    ] = 20,
    retrain_lr: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("Learning rate of the retraining.")
    ] = 0.01,
    covariance: Annotated[
        Covariance,
        Doc("Covariance of features: of each class (full), its diagonal, or one for all classes (shared)."),
    ] = "full",
) -> Method:
    """CCVR: after FedAvg, the head is retrained on virtual features from Gaussians, one for each class.

    Equation:
        Σ_c = (Σ z zᵀ − Σ z Σ zᵀ/N_c)/(N_c − 1) from the sums of all clients (`gaussians`); `virtual` features
        of each class from N(μ_c, Σ_c); then CE of the head alone (`HeadCalibration`). With T rounds there are
        T − 1 rounds of FedAvg. The last one only collects moments, and what clients train in it is discarded.
        The model before the retraining is also scored, as accuracy_broadcast.

    Source:
        Luo et al. 2021, which has no official code. M_c = 100, 500 or 1000 is the paper's; SGD, its rate, 20
        epochs and batches of 64 are a decision. The features are not transformed.

    Departures: only participants of the last round send moments, where the paper has all clients do it. A run
    that ends early, by its rule or by a person, is not calibrated. A client sends sums of products instead of
    covariances, which add up to the same Σ_c.
    """
    if not epochs:
        return Method("CCVR")
    return Method(
        "CCVR", message=ClosingMoments(covariance), server=HeadCalibration(virtual, epochs, retrain_lr)
    )

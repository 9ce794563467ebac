"""FedDecorr (Shi et al. 2023): the feature dimensions of every batch are decorrelated."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked

# How correlated the dimensions of a batch's features are: within classes (FedMR) or over all (FedDecorr).


EPS = 1e-8  # inside the root of the standard deviation, as in both released codes


def intra_class(z: Tensor, y: Tensor, norm: str = "official", least: int = 2) -> Tensor:
    """ℓ_intra [] of features z [B, D], labels y [B]; exactly 0 where no class qualifies; computed in float32
    or better.

    Dense: ‖X̂ᵀX̂‖²_F = ‖X̂X̂ᵀ‖²_F turns the D x D products per class into one B x B product
    (docs/papers/fedmr.md §2.1).
    """
    z = z if z.dtype == torch.float64 else z.float()
    same = (y[:, None] == y[None, :]).to(z.dtype)  # [B, B]
    size = same.sum(1)  # N of each row's class
    kept = (size >= least).to(z.dtype)
    centred = z - same @ z / size[:, None]
    divisor = size if norm == "paper" else (size - 1).clamp(min=1)
    unit = kept[:, None] * centred * (same @ centred.square() / divisor[:, None] + EPS).rsqrt()
    weight = kept / (size - 1).clamp(min=1).square() if norm == "paper" else kept
    frobenius = (weight[:, None] * same * (unit @ unit.T).square()).sum()
    if norm == "paper":
        return frobenius / (kept / size).sum().clamp(min=1)  # Σ rows of 1/N_c = number of classes kept
    diagonal = ((same @ unit.square()).square() / size[:, None]).sum()
    d = z.shape[1]
    # One feature has no pair: 0
    return (frobenius - diagonal) / max(d * (d - 1), 1) / kept.sum().clamp(min=1)


def correlation(z: Tensor, norm: str = "official") -> Tensor:
    """Return how correlated the feature dimensions are over a whole batch; in float32 or better.

    official: mean_{i≠j} (X̂ᵀX̂)²_ij / N, X̂ the columns centred and divided by sqrt(unbiased variance + 1e-8).
    It is `intra_class` with one label. With correlations ρ_ij it is (N − 1)²/N · mean_{i≠j} ρ_ij².
    paper: mean_{i,j} ρ_ij², diagonal included.

    Args:
        z: Features [N, D].
        norm: "official" or "paper".

    Returns:
        A tensor without dimensions, []. It is 0 for a batch of one.
    """
    if norm == "official":
        return intra_class(z, torch.zeros_like(z[:, 0], dtype=torch.int64))
    z = z if z.dtype == torch.float64 else z.float()
    rest = max(z.shape[0] - 1, 1)
    centred = z - z.mean(0)
    unit = centred * (centred.square().sum(0) / rest + EPS).rsqrt()
    return (unit @ unit.T).square().sum() / (rest * z.shape[1]) ** 2


class Decorrelation(Term):
    """β times the mean squared correlation of the feature dimensions over the batch (`correlation`).

    The features are the input of the head.
    """

    beta: float
    norm: str = "official"

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.beta * correlation(f.z, self.norm)


@checked
def feddecorr(
    beta: Annotated[
        float,
        Range(0.0, 1e6),
        Strength(),
        Doc("β, weight of the decorrelation, in units of `norm`; 0 is FedAvg."),
    ] = 0.1,
    norm: Annotated[
        Literal["official", "paper"],
        Doc(
            "Normalisation of the decorrelation: the released code's, which grows with the batch, or the "
            "paper's."
        ),
    ] = "official",
) -> Method:
    """FedDecorr: FedAvg whose clients decorrelate the feature dimensions of every batch.

    Equation:
        CE + β · mean_{i≠j} (X̂ᵀX̂)²_ij / N over the d features of a batch of N samples, X̂ the columns with mean
        0 and variance 1 (`Decorrelation`). It keeps features from collapsing into few dimensions.

    Source:
        Shi, Liang, Zhang, Tan & Bai, ICLR 2023, arXiv 2210.00226. β = 0.1 is that of the authors' scripts for
        CIFAR-10 and TinyImageNet; those for CIFAR-100 have 0.05.

    Departure: the paper prints ‖K‖²_F/d² with K the correlation matrix (norm = "paper"). The released code
    leaves out the diagonal and is (N − 1)²/N times larger otherwise, and the published β belong to it. So it
    is the default, and a β holds for one batch size.
    """
    return Method("FedDecorr", terms=(Decorrelation(beta, norm),) if beta else ())

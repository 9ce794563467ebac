"""FedDecorr (Shi et al. 2023): the feature dimensions of every batch are decorrelated."""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.method import Method
from raffed.methods.decorrelation import correlation


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

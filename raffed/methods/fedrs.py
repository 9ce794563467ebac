"""FedRS (Li & Zhan, KDD 2021) and the restricted softmax of MAP (Li et al., TKDE 2024, eq. 8)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Head, Method
from raffed.config.validation import Doc, Range, checked

RestrictionMode = Literal["binary", "counts", "uniform_bug"]
AutoMode = Literal["auto", "binary", "counts", "uniform_bug"]
AUTO = "auto"  # binary, or what a method's preset "authors" has
LogitFactor = Annotated[
    float, Range(0.0, 1.0), Doc("α, factor on the logits of classes that the client misses.")
]
LeastSamples = Annotated[int, Range(1), Doc("Number of samples from which on a client has a class.")]
Restriction = Annotated[
    RestrictionMode,
    Doc(
        "How α applies: by whether a class is held (binary), by its share (counts), or to nearly all "
        "classes as in the authors' code (uniform_bug)."
    ),
]
RestrictionOrAuto = Annotated[
    AutoMode,
    Doc(
        "How α applies: by whether a class is held (binary), by its share (counts), or to nearly all "
        "classes as in the authors' code (uniform_bug). auto: binary, or what the preset has."
    ),
]


class RestrictedSoftmax(Head):
    """logit_c · α_{k,c} in local training only, never at test time.

    Mode "binary" (eq. 8): α_{k,c} = 1 if n_{k,c} ≥ n_min, otherwise α. Mode "counts" (Sect. 5.4, complete
    classes): α + (1 − α) n_{k,c} / max_j n_{k,j}. Mode "uniform_bug": α for every class unless the client
    holds only one, which is what the released MAP code computes (a softmax temperature 1/α;
    docs/papers/map.md §1.4). α = 0 is not masking: a missing class still adds exp(0) to the denominator.
    """

    alpha: float
    mode: str = "binary"
    n_min: int = 1

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a * self.factors(k.class_counts)

    def factors(self, counts: Tensor) -> Tensor:
        """α_{k,c} [C] from the class counts [C] of the client's training part."""
        n = counts.to(torch.float32)
        if self.mode == "counts":
            return self.alpha + (1 - self.alpha) * n / n.max()
        kept = n / n.sum() >= self.n_min if self.mode == "uniform_bug" else n >= self.n_min
        return torch.where(kept, 1.0, self.alpha)


def restricted(alpha: float, mode: str, n_min: int, auto: RestrictionMode = "binary") -> RestrictedSoftmax:
    """A RestrictedSoftmax, whose mode is `auto` where mode "auto" is asked for."""
    return RestrictedSoftmax(float(alpha), auto if mode == AUTO else mode, n_min)


@checked
def fedrs(alpha: LogitFactor = 0.5, mode: Restriction = "binary", n_min: LeastSamples = 1) -> Method:
    """FedRS: FedAvg whose clients scale down the logits of classes that they miss.

    Equation:
        logit_c · α_{k,c} in local training only, with α_{k,c} by `mode` (`RestrictedSoftmax`).

    Source:
        Li & Zhan, KDD 2021, and MAP (Li et al., TKDE 2024), eq. 8. Row FedRS of MAP's Tables I and II.
    """
    return Method("FedRS", head=restricted(alpha, mode, n_min))

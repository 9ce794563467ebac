"""FedRS (Li & Zhan, KDD 2021) and the restricted softmax of MAP (Li et al., TKDE 2024, eq. 8)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.ingredients import Head
from raffed.core.method import Method
from raffed.errors import UsageError, check_choice, check_range

RestrictionMode = Literal["binary", "counts", "uniform_bug"]
RS_MODES: tuple[str, ...] = get_args(RestrictionMode)
AutoMode = Literal["auto", "binary", "counts", "uniform_bug"]
AUTO = "auto"  # binary, or what a method's preset "authors" has


class RestrictedSoftmax(Head):
    """logit_c · α_{k,c} in local training only, never at test time.

    binary (eq. 8): α_{k,c} = 1 if n_{k,c} ≥ n_min, else α. counts (Sect. 5.4, complete classes):
    α + (1 − α) n_{k,c} / max_j n_{k,j}. uniform_bug: α for every class unless the client holds one only,
    which is what the authors' released MAP code computes (a softmax temperature 1/α; docs/papers/map.md
    §1.4). α = 0 is not masking: a missing class still adds exp(0) to the denominator.
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


def restricted(alpha: float, mode: str, n_min: int, auto: RestrictionMode | None = None) -> RestrictedSoftmax:
    """A checked RestrictedSoftmax: α in [0, 1], n_min ≥ 1. auto: what mode "auto" is; without it there is
    no such mode.
    """
    check_range("alpha", alpha, 0.0, 1.0)
    check_choice("mode", mode, get_args(AutoMode) if auto else RS_MODES)
    mode = auto if auto and mode == AUTO else mode
    if n_min < 1:
        raise UsageError(f"n_min = {n_min}: a class is observed from at least 1 sample on")
    return RestrictedSoftmax(float(alpha), mode, n_min)


def fedrs(alpha: float = 0.5, mode: RestrictionMode = "binary", n_min: int = 1) -> Method:
    """FedRS: FedAvg whose clients scale the logits of classes they miss by α. Row FedRS of MAP's Tables I
    and II.
    """
    return Method("FedRS", head=restricted(alpha, mode, n_min))

"""FedLC (Zhang et al. 2022): logits lowered by a margin that is larger for classes with fewer samples."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Head, Method
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import mean_nll, one_hot
from raffed.methods.common import NEVER

FEW = 1e-8  # the samples that a missing class counts as if it is "soft": its margin is 100 τ


class CalibratedLogits(Head):
    """z_c − τ n_c^{−1/4} in training only, with n_c the client's class counts.

    `missing` says what a class without samples gets, whose margin would be infinite. "mask": no probability
    and no gradient. "soft": the margin of 1e-8 samples, which is 100 τ.
    """

    tau: float
    missing: str = "mask"

    @property
    def smooths(self) -> bool:
        return self.missing == "soft"

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return calibrated(a, k.class_counts, self.tau, self.missing)


class OtherClasses(Head):
    """−log( e^{a_y} / Σ_{c≠y} e^{a_c} ), a the calibrated logits: the true class is not in the denominator.

    The loss has no lower bound: the gradient at a_y is −1/B whatever the logits are. Where the mask leaves no
    class in the denominator, its logarithm counts 0. Label smoothing does not apply.
    """

    tau: float
    missing: str = "mask"

    @property
    def smooths(self) -> bool:
        return False

    def loss(self, f: Forward, k: Context) -> Tensor:
        a = calibrated(f.logits, k.class_counts, self.tau, self.missing)
        others = torch.where(one_hot(f.y, a.shape[-1]) > 0, NEVER, a).logsumexp(-1)
        return mean_nll(a, f.y) + torch.where(others > NEVER / 2, others, 0.0).mean()


def calibrated(a: Tensor, counts: Tensor, tau: float, missing: str = "mask") -> Tensor:
    """Logits a [B, C] minus τ n^{−1/4}, from the client's class counts [C] (`CalibratedLogits`)."""
    held = counts > 0
    margin = tau * torch.where(held, counts.to(torch.float32), FEW).pow(-0.25)
    return a - margin if missing == "soft" else torch.where(held, a - margin, NEVER)


@checked
def fedlc(
    tau: Annotated[
        float, Range(0.0, 1e3), Strength(), Doc("τ, scale of the margins τ n_c^{−1/4}; 0 is FedAvg.")
    ] = 0.5,
    denominator: Annotated[
        Literal["all", "others"],
        Doc(
            "Classes in the denominator of the loss: all, as in public codes, or all but the true one, as "
            "the paper prints it."
        ),
    ] = "all",
    missing: Annotated[
        Literal["mask", "soft"],
        Doc(
            "What a class that the client misses gets: no probability (mask), or the margin of 1e-8 samples "
            "(soft)."
        ),
    ] = "mask",
) -> Method:
    """FedLC: FedAvg whose clients lower each logit by a margin that grows as the class has fewer samples.

    Equation:
        CE(z − τ n_k^{−1/4}), n_k the client's class counts, in local training only (`CalibratedLogits`). With
        the mask, small τ approaches the cross-entropy over the client's own classes, and not FedAvg.

    Source:
        Zhang, Li, Li, Xu, Wu, Ding & Wu, ICML 2022, arXiv 2209.00189. There is no official code. τ = 0.5 is
        that of FedVLS's comparison (Guo et al. 2025, Table 10); the codes of FedDecorr and FedVLS have 0.1.

    Departure: the paper's loss leaves the true class out of the denominator (`OtherClasses`), and public
    codes do not. It has no lower bound, and users have reported that training collapses, so
    denominator = "all" is the default.
    """
    if tau == 0:
        return Method("FedLC")  # a mask alone is not FedAvg
    head = OtherClasses(tau, missing) if denominator == "others" else CalibratedLogits(tau, missing)
    return Method("FedLC", head=head)

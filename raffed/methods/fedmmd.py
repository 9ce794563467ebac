"""FedMMD (Yao et al. 2018): two streams, the local features kept near those of the frozen global model."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import mmd


class TwoStream(Term):
    """λ MMD²(h_local, h_global), squared, with five Gaussian bands (`core.losses.mmd`).

    The global stream is in evaluation mode.
    """

    lam: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.lam * mmd(f.z, k.net(k.start, f.x)[1])


@checked
def fedmmd(
    lam: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the discrepancy; 0 is FedAvg.")
    ] = 0.01,
) -> Method:
    """FedMMD: local features are kept near those of the frozen global model.

    Equation:
        CE + λ MMD²(h_local, h_global) (`TwoStream`). The bands of the kernel follow the data, so the pull is
        as strong on narrow features as on wide ones: with MAP's initialisation of LeNet, whose features are
        0.002 wide, λ = 0.01 keeps the network where it starts, and 0.001 does not. In a batch of one sample,
        as the last of an epoch may be, the only band is the feature's own distance from the global one. Its
        pull is then 4.84 λ divided by that distance, which a small first step makes large. A run with
        `drop_last` has no such batch unless a client has a single sample.

    Source:
        Yao et al. 2018. MAP's code searches λ in 0.001, 0.01 and 0.1. Row FedMMD of MAP's Tables I and II.
    """
    return Method("FedMMD", terms=(TwoStream(lam),) if lam else ())

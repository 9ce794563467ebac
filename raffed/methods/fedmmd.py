"""FedMMD (Yao et al. 2018): two streams, the local features kept near those of the frozen global model."""

from __future__ import annotations

from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.losses import mmd
from raffed.core.method import Method
from raffed.errors import check_range


class TwoStream(Term):
    """λ MMD²(h_local, h_global): squared, five Gaussian bands (`core.maths.mmd`), the global stream in
    evaluation mode.
    """

    lam: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.lam * mmd(f.z, k.net(k.start, f.x)[1])


def fedmmd(lam: float = 0.01) -> Method:
    """FedMMD, λ ≥ 0 (0: FedAvg); MAP's code searches 0.001, 0.01, 0.1. Row FedMMD of MAP's Tables I and II.

    The bands follow the data, so the pull is as strong on narrow features as on wide ones: with MAP's
    initialisation of LeNet (features 0.002 wide) 0.01 keeps the network where it starts, 0.001 does not.
    """
    check_range("lam", lam, 0.0, 1e6)
    return Method("FedMMD", terms=(TwoStream(lam),) if lam else ())

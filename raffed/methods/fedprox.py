"""FedProx (Li et al. 2020, eq. 2): FedAvg with a quadratic pull towards the downloaded weights."""

from __future__ import annotations

from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.losses import smooth_pull
from raffed.core.method import Method
from raffed.core.server import mean_of
from raffed.errors import Preset, by_authors, check_range
from raffed.methods.fedproc import PrototypeLoss, prototype_terms


class Proximal(Term):
    """(μ/2) ‖w − w^t‖², trainable parameters only; its gradient μ(w − w^t) passes through the momentum
    buffer.

        smooth: μ times the pull of MAP's released code (`smooth_pull`) in its place.
    """

    mu: float
    smooth: bool = False

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu * smooth_pull(f.w, k.w0) if self.smooth else self.mu / 2 * (f.w - k.w0).sq_norm()


def fedprox(mu: float = 0.01, prototypes: PrototypeLoss = "none", preset: Preset = "original") -> Method:
    """FedProx, μ ≥ 0 (0: FedAvg). Default from the label-skew literature (docs/papers/baselines.md, FedProx).

    prototypes: none, fedproc or fedmr, as in FedMR's Table 8. preset "authors" is MAP's released code: its
    far weaker smooth-L1 pull (docs/papers/baselines.md, FedProx) and uniform means; it tries μ 1e-4, 1e-3,
    1e-2.
    """
    check_range("mu", mu, 0.0, 1e6)
    terms = (Proximal(mu, by_authors(preset)),) if mu else ()
    return Method("FedProx", terms=terms + prototype_terms(prototypes), mean=mean_of(preset))

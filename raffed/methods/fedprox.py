"""FedProx (Li et al. 2020, eq. 2): FedAvg with a quadratic pull towards the downloaded weights."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import smooth_pull
from raffed.core.server import mean_of
from raffed.methods.fedproc import WithPrototypes, prototype_terms
from raffed.methods.registry import Variant


class Proximal(Term):
    """(μ/2) ‖w − w^t‖², trainable parameters only; its gradient μ(w − w^t) passes through the momentum
    buffer.

    smooth: μ times the pull of MAP's released code (`smooth_pull`) in its place.
    """

    mu: float
    smooth: bool = False

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu * smooth_pull(f.w, k.w0) if self.smooth else self.mu / 2 * (f.w - k.w0).sq_norm()


@checked
def fedprox(
    mu: Annotated[float, Range(0.0, 1e6), Strength(), Doc("μ, weight of the pull; 0 is FedAvg.")] = 0.01,
    prototypes: WithPrototypes = "none",
    preset: Variant = "original",
) -> Method:
    """FedProx: local training is pulled towards the downloaded weights.

    Equation:
        f_k(w) + (μ/2) ‖w − w^t‖², trainable parameters only.

    Source:
        Li et al. 2020, eq. 2. The default of μ comes from the label-skew literature
        (docs/papers/baselines.md, FedProx).

    The preset "authors" is MAP's released code: a far weaker smooth-L1 pull (docs/papers/baselines.md,
    FedProx) and uniform means. That code tries μ = 1e-4, 1e-3 and 1e-2.
    """
    terms = (Proximal(mu, preset == "authors"),) if mu else ()
    return Method("FedProx", terms=terms + prototype_terms(prototypes), mean=mean_of(preset))

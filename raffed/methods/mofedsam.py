"""MoFedSAM (Qu et al. 2022): FedCM's steps with FedSAM's gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from raffed import Context, Gradient, LocalSolver, Method, Params, Spec, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import Descent
from raffed.methods.fedcm import (
    NO_MOMENTUM,
    UNIFORM,
    Alpha,
    MixedGradient,
    Momentum,
    MomentumFromMean,
    RateSum,
    fedcm,
)
from raffed.methods.fedsam import SharpnessAwareSteps, scaled


class MixedSharpnessSteps(LocalSolver[Descent, None, RateSum, Momentum]):
    """On each mini-batch g = ∇f(w), w̃ = w + ρ g/(‖g‖ + 1e-12), w ← w − η (α ∇f(w̃) + (1 − α) m + wd·w).

    The memory of the server and the message are FedCM's (`MixedGradient`). BatchNorm's statistics are updated
    by the pass at w̃ alone.
    """

    rho: float
    alpha: float

    needs_sgd = True

    @property
    def follows(self) -> tuple[str, ...]:
        return ("lr", "weight_decay", "warmup_rounds", "schedule")

    def server_init(self, w: Params, spec: Spec) -> Momentum:
        return MixedGradient(self.alpha).server_init(w, spec)

    def begin(self, k: Context[None, Momentum]) -> Descent:
        return Descent.begun(k.start)

    def step(self, carried: Descent, gradient: Gradient, k: Context[None, Momentum]) -> Descent:
        slope, _ = gradient(carried.model, 0)
        ahead = State(carried.model.w + scaled(slope, self.rho), carried.model.b)
        steep, b = gradient(ahead, 0)
        return carried.along(MixedGradient(self.alpha).gradient(steep, k), b, k)

    def end(self, carried: Descent) -> State:
        return carried.model

    def finish(self, k: Context[None, Momentum]) -> tuple[None, RateSum]:
        return MixedGradient(self.alpha).finish(k)


@checked
def mofedsam(
    rho: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("ρ, how far ahead the gradient is taken; 0 is FedCM.")
    ] = 0.1,
    alpha: Alpha = 0.1,
) -> Method:
    """MoFedSAM: clients look for flat minima, along a mixture with the mean update of the last round.

    Equation:
        w̃ = w + ρ g/‖g‖, v = α ∇f(w̃) + (1 − α) m, w ← w − η (v + wd·w) (`MixedSharpnessSteps`), m as in
        FedCM. With ρ = 0 it is FedCM, and with α = 1 it is FedSAM. A step has two gradients.

    Source:
        Qu, Li, Duan, Liu, Tang & Lu, ICML 2022, arXiv 2206.02618, in the form of FL-Simulator
        (woodenchild95/FL-Simulator), whose ρ is 0.1. The poster of FedWMSAM has its best ρ at 0.01.

    Departures: those of FedCM. That code does not bound g before it goes ahead, and bounds the mixture by 10;
    here the run's `clip_norm` bounds each of the two gradients.
    """
    if rho == 0.0:
        return replace(fedcm(alpha), name="MoFedSAM")
    if alpha == 1.0:
        return Method("MoFedSAM", solver=SharpnessAwareSteps(rho))
    return Method(
        "MoFedSAM",
        solver=MixedSharpnessSteps(rho, alpha),
        passes=(NO_MOMENTUM,),
        mean=UNIFORM,
        server=MomentumFromMean("solver"),
    )

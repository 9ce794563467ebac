"""FedGAMMA (Dai et al. 2023): sharpness-aware local steps with SCAFFOLD's control variates."""

from __future__ import annotations

from typing import Annotated

from raffed import Context, Gradient, LocalSolver, Mean, Method, Params, Received, ServerSGD, Spec, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import Descent
from raffed.methods.fedsam import scaled
from raffed.methods.scaffold import (
    PLAIN_SGD,
    ClientControl,
    ControlDelta,
    ControlVariate,
    ServerControl,
    ServerRate,
)

CONTROL = ControlVariate()  # its memories and messages are SCAFFOLD's


class CorrectedSharpnessSteps(LocalSolver[Descent, ClientControl, ControlDelta, ServerControl]):
    """On each mini-batch g = ∇f(w), w̃ = w + ρ g/(‖g‖ + 1e-12), w ← w − η (∇f(w̃) − c_i + c).

    The controls are SCAFFOLD's (`ControlVariate`): c_i⁺ = c_i − c + (w^t − w_i) / Σ_j η_j, and c ← c + (1/N)
    Σ_S (c_i⁺ − c_i). Steps are plain SGD, without momentum and weight decay. BatchNorm's statistics are
    updated by the pass at w̃ alone.
    """

    rho: float

    @property
    def follows(self) -> tuple[str, ...]:
        return ("lr", "warmup_rounds", "schedule")

    def server_init(self, w: Params, spec: Spec) -> ServerControl:
        return CONTROL.server_init(w, spec)

    def client_init(self, k: Context[None, ServerControl]) -> ClientControl:
        return CONTROL.client_init(k)

    def begin(self, k: Context[ClientControl, ServerControl]) -> Descent:
        return Descent.begun(k.start)

    def step(self, carried: Descent, gradient: Gradient, k: Context[ClientControl, ServerControl]) -> Descent:
        w, b = carried.model.w, carried.model.b
        slope, _ = gradient(carried.model, 0)
        steep, b = gradient(State(w + scaled(slope, self.rho), b), 0)
        return carried.along(CONTROL.gradient(steep, k), b, k)

    def end(self, carried: Descent) -> State:
        return carried.model

    def finish(self, k: Context[ClientControl, ServerControl]) -> tuple[ClientControl, ControlDelta]:
        return CONTROL.finish(k)

    def server_step(self, s: ServerControl, got: Received[ControlDelta], spec: Spec) -> ServerControl:
        return CONTROL.server_step(s, got, spec)


@checked
def fedgamma(
    rho: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("ρ, how far ahead the gradient is taken; 0 is SCAFFOLD.")
    ] = 0.01,
    server_lr: ServerRate = 1.0,
) -> Method:
    """FedGAMMA: clients look for flat minima, and control variates correct the drift of their steps.

    Equation:
        w̃ = w + ρ ∇f(w)/‖∇f(w)‖, w ← w − η (∇f(w̃) − c_i + c), controls as in SCAFFOLD
        (`CorrectedSharpnessSteps`). Means are uniform. The run's momentum and weight decay do not apply, as
        in SCAFFOLD. A step has two gradients, so it costs twice SCAFFOLD's. With ρ = 0 it is SCAFFOLD.

    Source:
        Dai et al., TNNLS 2023, in the form of FL-Simulator (woodenchild95/FL-Simulator), since the authors'
        repository is gone. Its README has ρ = 0.01 for this method.

    The authors' runs: FL-Simulator's have rate 0.1, multiplied by 0.998 after every round, and 5 epochs.

    Departures: FL-Simulator divides by the number of steps of client 0, which need not be a whole number.
    Here every client divides by the sum of its own steps' rates. It also decays weights by 0.001, and bounds
    the corrected gradient by 10; here the run's `clip_norm` bounds each of the two gradients before the
    correction, as in SCAFFOLD.
    """
    sharp = rho > 0.0
    return Method(
        "FedGAMMA",
        correction=None if sharp else CONTROL,
        solver=CorrectedSharpnessSteps(rho) if sharp else None,
        passes=(PLAIN_SGD,),
        mean=Mean(by="clients"),
        server=ServerSGD(server_lr),
    )

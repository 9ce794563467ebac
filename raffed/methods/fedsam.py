"""FedSAM (Qu et al. 2022): the local gradient is taken where the loss is highest nearby."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Context, Gradient, LocalSolver, Method, Params, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import SGD_SETTINGS, Descent

Statistics = Literal["last", "both"]


class SharpnessAwareSteps(LocalSolver[Descent]):
    """On each mini-batch g = ∇f(w), w̃ = w + ρ g/(‖g‖ + 1e-12), then a step of SGD from w along ∇f(w̃).

    ‖g‖ is one norm over all parameters. BatchNorm's statistics are updated by the pass at w̃ alone ("last"),
    or first by the one at w ("both"). Dropout draws anew for the second pass.
    """

    rho: float
    stats: str = "last"

    needs_sgd = True

    @property
    def follows(self) -> tuple[str, ...]:
        return SGD_SETTINGS

    def begin(self, k: Context) -> Descent:
        return Descent.begun(k.start)

    def step(self, carried: Descent, gradient: Gradient, k: Context) -> Descent:
        slope, seen = gradient(carried.model, 0)
        w, b = carried.model.w, seen if self.stats == "both" else carried.model.b
        steep, b = gradient(State(w + scaled(slope, self.rho), b), 0)
        return carried.along(steep, b, k)

    def end(self, carried: Descent) -> State:
        return carried.model


def scaled(direction: Params, rho: float) -> Params:
    """Return the direction with the length ρ, by one norm over all its tensors; 0 stays 0."""
    return direction * (rho / (direction.sq_norm().sqrt() + 1e-12))


@checked
def fedsam(
    rho: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("ρ, how far ahead the gradient is taken; 0 is FedAvg.")
    ] = 0.05,
    stats: Annotated[
        Statistics,
        Doc("Which passes update BatchNorm's statistics: the last one of a step, or both."),
    ] = "last",
) -> Method:
    """FedSAM: clients minimise the highest loss nearby, and so look for flat minima.

    Equation:
        g = ∇f(w), w̃ = w + ρ g/‖g‖, w ← w − η (ρ_m v + ∇f(w̃) + wd·w) (`SharpnessAwareSteps`), with rate η,
        momentum ρ_m and weight decay wd of the run. A step has two gradients, so it costs twice FedAvg's.

    Source:
        Qu, Li, Duan, Liu, Tang & Lu, ICML 2022, arXiv 2206.02618; Caldarola, Caputo & Ciccone, ECCV 2022,
        arXiv 2203.11834. Public codes have ρ from 0.05 to 0.1 (Caldarola's script 0.1).

    Departures: in public codes both passes move BatchNorm's statistics, which here is stats = both. The run's
    `clip_norm` and `clip_value` bound each of the two gradients.
    """
    return Method("FedSAM", solver=SharpnessAwareSteps(rho, stats) if rho else None)

"""FedCM (Xu et al. 2021): every local step is mixed with the mean update of the last round."""

from __future__ import annotations

from typing import Annotated

from raffed import (
    Context,
    Correction,
    Mean,
    Method,
    Params,
    Pass,
    Private,
    ServerContext,
    ServerRule,
    Spec,
    Summable,
    Wire,
)
from raffed.config.validation import Doc, Range, checked

Alpha = Annotated[
    float,
    Range(0.0, 1.0, open_low=True),
    Doc("α, share of the client's own gradient in a step; 1 leaves the momentum out."),
]
NO_MOMENTUM = Pass(momentum=0.0)  # m is in units of the gradient, which a velocity would multiply
UNIFORM = Mean(by="clients", fixed=True)  # m is divided by the uniform mean of Σ_j η_j


class Momentum(Wire):
    """m, the mean gradient along which the participants of the last round moved."""

    m: Params


class RateSum(Summable):
    """Σ_j η_j over a client's steps: one number beside the weights."""

    rates: float


class KeptMomentum(Private):
    """m, as the server keeps it."""

    m: Params


class MomentumFromMean(ServerRule[KeptMomentum]):
    """w^{t+1} = mean_S w_k; m⁺ = (w^t − mean_S w_k) / mean_S Σ_j η_j, which goes to the ingredient in `slot`.

    At a constant rate the divisor is K η. Where it is 0, nothing has moved, and m⁺ is 0.
    """

    slot: str

    def init(self, w: Params) -> KeptMomentum:
        return KeptMomentum(w.zeros())

    def step(
        self, own: KeptMomentum, w: Params, mean: Params, k: ServerContext
    ) -> tuple[KeptMomentum, Params]:
        told = k.received[self.slot]
        assert isinstance(told.sum, RateSum)
        return KeptMomentum(mean_gradient(w, mean, told.sum.rates / told.count)), mean

    def extra_broadcast(self, own: KeptMomentum) -> dict[str, Wire]:
        return {self.slot: Momentum(own.m)}


def mean_gradient(w: Params, after: Params, rates: float) -> Params:
    """Return the gradient along which plain SGD with these summed rates moves from `w` to `after`."""
    return (w - after) / rates if rates else w.zeros()


class MixedGradient(Correction[None, RateSum, Momentum]):
    """g ← α g + (1 − α) m. Weight decay is added to the result. In the first round m = 0."""

    alpha: float

    def server_init(self, w: Params, spec: Spec) -> Momentum:
        return Momentum(w.zeros())

    def gradient(self, g: Params, k: Context[None, Momentum]) -> Params:
        return g * self.alpha + k.server.m * (1.0 - self.alpha)

    def finish(self, k: Context[None, Momentum]) -> tuple[None, RateSum]:
        return None, RateSum(float(k.lr_sum))


@checked
def fedcm(alpha: Alpha = 0.1) -> Method:
    """FedCM: clients step along a mixture of their own gradient and the mean update of the last round.

    Equation:
        v = α g + (1 − α) m; w ← w − η (v + wd·w) (`MixedGradient`); m⁺ = −mean_S Δ_k/(K η)
        (`MomentumFromMean`). Means are uniform, and the run's momentum does not apply. With α = 1 all of this
        is left out, so that it is FedAvg with the run's momentum.

    Source:
        Xu, Wang, Wang & Yao 2021, arXiv 2106.10874. There is no official code; read in FL-Simulator
        (woodenchild95/FL-Simulator) and in FedWMSAM's repository, which is built on it.

    The runs of those codes: α 0.1, rate 0.1 multiplied by 0.998 after every round, weight decay 1e-3, batches
    of 50, 5 epochs; 100 clients, of which each takes part with probability 0.1. In round 0 m is 0, so that a
    step is α times FedAvg's.

    Departures: those codes bound the mixed gradient by 10, where the run's `clip_norm` bounds g before the
    mixture. They divide by the number of steps of client 0, which need not be whole; here the server divides
    by the mean over clients of the sums of the rates as used. They print the loss with ⟨w, m⟩ in it, and here
    the loss is the cross-entropy. BatchNorm's statistics are uniform means.
    """
    if alpha == 1.0:
        return Method("FedCM")
    return Method(
        "FedCM",
        correction=MixedGradient(alpha),
        passes=(NO_MOMENTUM,),
        mean=UNIFORM,
        server=MomentumFromMean("correction"),
    )

"""FedNova (Wang et al. 2020): updates normalised by what the local steps add up to, so that long training does not weigh more."""

from __future__ import annotations

from typing import Any

from raffed.core.boundary import Private, Summable
from raffed.core.context import Context, ServerContext
from raffed.core.maths import momentum_sum
from raffed.core.method import Ingredient, Method
from raffed.core.params import Params
from raffed.core.server import ServerRule
from raffed.methods.fedproc import prototype_terms


class LocalSteps(Summable):
    """n_k ‖a_k‖₁: one number beside the update."""

    fraction_bits = 24  # 2^-24 of a step, up to 2^38 sample-steps

    weighted: float


class NormalisedUpdate(Ingredient):
    """Sends Δ_k / ‖a_k‖₁ in place of w_k, Δ_k = w^t − w_k; ‖a‖₁ counts the run's momentum (weight decay is gradient)."""

    def outgoing(self, w: Params, k: Context) -> Params:
        return ((k.w0 - k.w) / momentum_sum(k.steps, k.momentum)).only(w.names).clone()

    def finish(self, k: Context) -> tuple[None, LocalSteps]:
        return None, LocalSteps(int(k.class_counts.sum()) * momentum_sum(k.steps, k.momentum))


class NormalisedStep(ServerRule):
    """w^{t+1} = w^t − τ_eff Σ_k p_k Δ_k/‖a_k‖₁, τ_eff = Σ_k p_k ‖a_k‖₁; BatchNorm's statistics are averaged as ever.

    The weights τ_eff p_k/‖a_k‖₁ need not add up to 1, so the same rule on running variances could make them negative.
    """

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Private | None, Params]:
        told = k.received["message"].sum
        assert isinstance(told, LocalSteps)
        return None, w - mean * (told.weighted / k.samples)


def fednova(prototypes: str = "none") -> Method:
    """FedNova for momentum SGD at a constant rate within the round. Row FedNova of FedMR's Table 1.

    prototypes: none, fedproc or fedmr, as in its Table 8.
    """
    return Method("FedNova", terms=prototype_terms(prototypes), message=NormalisedUpdate(), server=NormalisedStep())

"""APFL (Deng et al. 2020): a private model mixed with the shared one, trained through the mixture."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Params, Personal, State
from raffed.config.validation import Doc, Range, checked
from raffed.methods.common import Companion


class MixedModel(Personal[Companion]):
    """v̄ = α v_k + (1 − α) w_k on parameters.

    On every mini-batch w_k takes FedAvg's step. v_k also takes a step, along the gradient of f(v̄) formed
    before FedAvg's step, α ∇f(v̄). w_k does not get that gradient. v_k starts as the initial model and stays
    private. In f(v̄) BatchNorm uses batch statistics, and it re-estimates them for scoring. The mixture is
    scored with the locally trained w_k, as in MLOPTPSU/FedTorch; other implementations take w^{t+1}.
    """

    alpha: float

    apart = True

    def client_init(self, k: Context) -> Companion:
        return Companion(k.initial.w)

    def companion(self, k: Context[Companion]) -> Params:
        return k.mine.own

    def loss(self, f: Forward, k: Context) -> Tensor:
        assert f.through is not None
        logits, _ = f.through(self.mixed(f.own, Params({n: t.detach() for n, t in f.w.tensors.items()})))
        return k.loss_of(logits, f.y)

    def mixed(self, companion: Params, w: Params) -> Params:
        """α v + (1 − α) w."""
        alpha = companion["alpha"] if "alpha" in companion.names else self.alpha
        return Params({n: alpha * companion[n] + (1 - alpha) * t for n, t in w.tensors.items()})

    def finish(self, k: Context) -> tuple[Companion, None]:
        return Companion(k.own), None

    def model(self, k: Context[Companion]) -> State:
        return k.reestimate(State(self.mixed(k.mine.own, k.w).clone(), k.state.b))


class AdaptiveMixedModel(MixedModel):
    """The same with a private α_k: α ← clip(α − η ⟨v − w, ∇f(v̄)⟩, 0, 1) once a round, at the first
    mini-batch.
    """

    gates = ("alpha",)

    def client_init(self, k: Context) -> Companion:
        alpha = torch.full((1,), self.alpha, device=k.class_counts.device)
        return Companion(Params({**k.initial.w.tensors, "alpha": alpha}).clone())

    def update_gates(self, gates: Params, slope: Params, lr: float, step: Tensor) -> Params:
        return Params(
            {
                "alpha": torch.where(
                    step == 0, (gates["alpha"] - lr * slope["alpha"]).clamp(0.0, 1.0), gates["alpha"]
                )
            }
        )


@checked
def apfl(
    alpha: Annotated[
        float, Range(0.0, 1.0), Doc("α, share of the private model in the mixture; its start if adaptive.")
    ] = 0.5,
    adaptive: Annotated[bool, Doc("Whether each client adapts its α once a round.")] = False,
) -> Method:
    """APFL: a private model mixed with the shared one; the server is FedAvg's.

    Equation:
        v̄ = α v_k + (1 − α) w_k; v_k steps along α ∇f(v̄) (`MixedModel`, `AdaptiveMixedModel`).

    Source:
        Deng et al. 2020. Row APFL of MpFedcon's Table 1 and GLDP's Tables 1 to 3. The grid of α is 0.25, 0.5
        and 0.75.
    """
    return Method("APFL", personal=AdaptiveMixedModel(alpha) if adaptive else MixedModel(alpha))

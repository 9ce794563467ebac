"""FedDC (Gao et al. 2022): local drift decoupled and corrected, with SCAFFOLD-style gradient correction
(official code).
"""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from raffed import Context, Forward, Mean, Method, Params, Private, Received, Spec, Summable, Term, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import momentum_sum
from raffed.methods.feddyn import DriftCorrected, ScaledByShare, ScoredModel, client_weight
from raffed.methods.fedproc import WithPrototypes, prototype_terms

Beta = Literal["a_norm", "steps", "mean_steps"]


class ServerCorrection(Wire):
    """c, the mean of ω_k c_k over all clients."""

    c: Params


class ClientDrift(Private):
    """h_k, the drift, and c_k, the client's gradient correction; trainable parameters only."""

    h: Params
    c: Params


class CorrectionDelta(Summable):
    """ω_k (c_k⁺ − c_k)."""

    dc: Params


class DriftControl(Term[ClientDrift, CorrectionDelta, ServerCorrection]):
    """(α_k/2) ‖w − (w^t − h_k)‖² + ⟨w, c/ω_k − c_k⟩, α_k = α/ω_k, trainable parameters only.

    After training, with δ = w_k − w^t: h_k ← h_k + δ, c_k⁺ = c_k − c/ω_k − β δ and c ← c + (1/N) Σ_S ω_k
    (c_k⁺ − c_k). If `scaled`, ω_k = n_k·N/Σ_j n_j, otherwise 1. At η = 0, where δ = 0, β δ is 0. `beta` has
    three forms.

    "a_norm" (the default) is 1/(η ‖a‖₁), with ‖a‖₁ what the client's steps add up to. "steps" is 1/(K η),
    with K the client's own number of steps. It is the same without momentum. With momentum it over-estimates
    gradients by ‖a‖₁/K and diverges. "mean_steps" is 1/(K̄ η), the official code: K̄ = E ⌈n̄/B⌉ is one number
    for all clients, the steps of a client with the mean number of samples n̄. It equals "steps" where all
    clients make equally many. For example, for a client that moved by −0.6 in 3 steps at η = 0.1 the gradient
    is 2 by "steps" and, where K̄ = 6, 1 by "mean_steps".
    """

    needs_sgd = True  # ‖a‖₁ is that of SGD at one rate
    needs_one_rate = True

    alpha: float
    beta: str = "a_norm"
    scaled: bool = True

    def server_init(self, w: Params, spec: Spec) -> ServerCorrection:
        return ServerCorrection(w.zeros())

    def client_init(self, k: Context) -> ClientDrift:
        return ClientDrift(k.w0.zeros(), k.w0.zeros())

    def loss(self, f: Forward, k: Context[ClientDrift, ServerCorrection]) -> Tensor:
        weight = self._weight(k)
        pull = self.alpha / weight / 2 * (f.w - (k.w0 - k.mine.h)).sq_norm()
        return pull + f.w.dot(k.server.c / weight - k.mine.c)

    def finish(self, k: Context[ClientDrift, ServerCorrection]) -> tuple[ClientDrift, CorrectionDelta]:
        weight, moved = self._weight(k), k.w - k.w0
        whole = momentum_sum(k.steps, k.momentum, nesterov=k.nesterov)
        steps = {"a_norm": whole, "steps": k.steps, "mean_steps": k.usual_steps}[self.beta]
        beta = 1.0 / (steps * k.lr_sum / k.steps) if k.lr_sum else 0.0  # at rate 0 nothing has moved
        c = k.mine.c - k.server.c / weight - moved * beta
        return ClientDrift(k.mine.h + moved, c), CorrectionDelta((c - k.mine.c) * weight)

    def server_step(
        self, s: ServerCorrection, got: Received[CorrectionDelta], spec: Spec
    ) -> ServerCorrection:
        if got.sum is None:
            return s
        return ServerCorrection(s.c + got.sum.dc / spec.num_clients)

    def _weight(self, k: Context) -> Tensor | float:
        return client_weight(k) if self.scaled else 1.0


@checked
def feddc(
    alpha: Annotated[
        float, Range(0.0, 1e3), Strength(), Doc("α, weight of the pull; 0 is not FedAvg.")
    ] = 0.01,
    beta: Annotated[
        Beta,
        Doc(
            "How a displacement becomes a gradient: divided by the rate times what the steps add up to with "
            "momentum (a_norm), the client's number of steps (steps), or the mean "
            "client's (mean_steps)."
        ),
    ] = "a_norm",
    scaled: ScaledByShare = True,
    score: ScoredModel = "active",
    prototypes: WithPrototypes = "none",
) -> Method:
    """FedDC: the local drift is decoupled and corrected, with a gradient correction like SCAFFOLD's.

    Equation:
        (α_k/2) ‖w − (w^t − h_k)‖² + ⟨w, c/ω_k − c_k⟩ (`DriftControl`). With α = 0 the server still adds the
        mean drift.

    Source:
        Gao et al. 2022 and the official code. The default α = 0.01 is that of the official examples for
        CIFAR; for MNIST they have 0.1. Row FedDC of FedMR's Table 1.

    Departures: the official code (beta mean_steps) trains without momentum, clips gradients at norm 10
    (`local.clip_norm`) and lowers the rate from round to round. It divides by the rate of the first round,
    this method by the round's own.
    """
    terms = (DriftControl(alpha, beta, scaled), *prototype_terms(prototypes))
    mean = Mean(by="clients", fixed=True)  # the server's drift counts on them
    return Method("FedDC", terms=terms, mean=mean, server=DriftCorrected(score))

"""FedDC (Gao et al. 2022): local drift decoupled and corrected, with SCAFFOLD-style gradient correction (official code)."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from raffed.core.boundary import Private, Summable, Wire
from raffed.core.context import Context, Forward
from raffed.core.errors import check_choice, check_range
from raffed.core.maths import momentum_sum
from raffed.core.method import Method, Received, Spec, Term
from raffed.core.params import Params
from raffed.core.server import Mean
from raffed.methods.feddyn import SCORED, DriftCorrected, Scored, client_weight
from raffed.methods.fedproc import PrototypeLoss, prototype_terms

Beta = Literal["a_norm", "steps"]
BETAS: tuple[str, ...] = get_args(Beta)


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


class DriftControl(Term):
    """(α_k/2) ‖w − (w^t − h_k)‖² + ⟨w, c/ω_k − c_k⟩, α_k = α/ω_k, trainable parameters only.

    After training, with δ = w_k − w^t: h_k ← h_k + δ, c_k⁺ = c_k − c/ω_k − β δ and c ← c + (1/N) Σ_S ω_k (c_k⁺ − c_k).
    scaled: ω_k = n_k·N/Σ_j n_j, else 1. `beta`: steps is 1/(K η), the official code, which trains without momentum; with
    momentum it over-estimates gradients by ‖a‖₁/K and diverges. a_norm (default) is 1/(η ‖a‖₁), the same without momentum.
    At η = 0, where δ = 0, β δ is 0.
    """

    alpha: float
    beta: str = "a_norm"
    scaled: bool = True

    def server_init(self, w: Params, spec: Spec) -> ServerCorrection:
        return ServerCorrection(w.zeros())

    def client_init(self, k: Context) -> ClientDrift:
        return ClientDrift(k.w0.zeros(), k.w0.zeros())

    def loss(self, f: Forward, k: Context) -> Tensor:
        weight = self._weight(k)
        pull: Tensor = self.alpha / weight / 2 * (f.w - (k.w0 - k.mine.h)).sq_norm()
        return pull + f.w.dot(k.server.c / weight - k.mine.c)

    def finish(self, k: Context) -> tuple[ClientDrift, CorrectionDelta]:
        weight, moved = self._weight(k), k.w - k.w0
        steps = momentum_sum(k.steps, k.momentum) if self.beta == "a_norm" else k.steps
        beta = 1.0 / (steps * k.lr_sum / k.steps) if k.lr_sum else 0.0  # at rate 0 nothing has moved
        c = k.mine.c - k.server.c / weight - moved * beta
        return ClientDrift(k.mine.h + moved, c), CorrectionDelta((c - k.mine.c) * weight)

    def server_step(self, s: ServerCorrection, got: Received, spec: Spec) -> ServerCorrection:
        if not isinstance(got.sum, CorrectionDelta):
            return s
        return ServerCorrection(s.c + got.sum.dc / spec.num_clients)

    def _weight(self, k: Context) -> Tensor | float:
        return client_weight(k) if self.scaled else 1.0


def feddc(
    alpha: float = 0.01, beta: Beta = "a_norm", scaled: bool = True, score: Scored = "active", prototypes: PrototypeLoss = "none"
) -> Method:
    """FedDC, α in [0, 1e3]; default 0.01 from the official examples (CIFAR), 0.1 for MNIST. Row FedDC of FedMR's Table 1.

    score and prototypes as FedDyn. α = 0 is not FedAvg: the server still adds the mean drift.
    """
    check_range("alpha", alpha, 0.0, 1e3)
    check_choice("beta", beta, BETAS)
    check_choice("score", score, SCORED)
    terms = (DriftControl(alpha, beta, scaled), *prototype_terms(prototypes))
    mean = Mean(by="clients", fixed=True)  # the server's drift counts on them
    return Method("FedDC", terms=terms, mean=mean, server=DriftCorrected(score))

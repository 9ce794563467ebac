"""FedPHP (Li et al., ECML-PKDD 2021): the inherited private model (HPM) and the knowledge it passes on."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Personal, Private, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import mmd

Transfer = Literal["kd", "mmd"]
TransferWeight = Annotated[float, Range(0.0, 1.0), Strength(), Doc("λ, weight of the knowledge transfer.")]
InheritedShare = Annotated[
    float, Range(0.0, 1.0), Doc("μ, how fast the inherited model's share grows with participations.")
]
TransferLoss = Annotated[
    Transfer, Doc("Loss of the transfer: distilled outputs (kd) or discrepancy of features (mmd).")
]
StudentTemperature = Annotated[
    float,
    Range(0.0, 100.0, open_low=True),
    Doc("τ_s, the student's temperature in kd; 1 as in the authors' code, 4 is the symmetric form."),
]
TemperatureSquared = Annotated[bool, Doc("Whether the kd loss is multiplied by τ_s².")]
KD_TAU = 4.0  # teacher temperature, fixed in the paper


class Heirloom(Private):
    """ψ_k, the HPM (parameters and BatchNorm statistics), and z_k [], how often the client took part
    before.
    """

    model: State
    times: Tensor


class Inheritance(Personal[Heirloom]):
    """ψ ← μ_k ψ + (1 − μ_k) ω^per, μ_k = clip(μ z_k / (Q·T), 0, 0.9) (MAP eq. 10).

    z_k is counted before this turn. The transfer loss has the HPM as frozen teacher in evaluation mode. KD
    (eq. 11) is −Σ_c σ(z^p/4)_c log σ(z/τ_s)_c, mean over the batch. τ_s = 1 is the form of the authors' code,
    which tempers the teacher only. τ_s = 4 is the symmetric form, with the same gradient as KL. `kd_tau_sq`
    multiplies by τ_s². MMD (eq. 12) compares the features. At the first participation there is no HPM, so μ_k
    = 0 and nothing is transferred.
    """

    lam: float = 0.1
    mu: float = 0.9
    transfer: str = "kd"
    kd_student_tau: float = 1.0
    kd_tau_sq: bool = False

    def client_init(self, k: Context) -> Heirloom:
        return Heirloom(k.start, torch.zeros((), dtype=torch.int64, device=k.class_counts.device))

    def teach(self, f: Forward, k: Context[Heirloom]) -> Tensor:
        """L_KT [] against the HPM in `k.mine`; 0 at the first participation, whatever the HPM holds."""
        known = k.mine.times > 0
        logits, z = k.net(k.mine.model, f.x)
        if self.transfer == "mmd":
            return torch.where(known, mmd(f.z, torch.where(known, z, f.z.detach())), 0.0)
        teacher = torch.where(known, logits, 0.0).div(KD_TAU).softmax(-1)
        loss = -(teacher * (f.logits / self.kd_student_tau).log_softmax(-1)).sum(-1).mean()
        return torch.where(known, loss * (self.kd_student_tau**2 if self.kd_tau_sq else 1.0), 0.0)

    def taught(self, f: Forward, k: Context[Heirloom]) -> Tensor:
        """(1 − λ) L_CE + λ L_KT  (eq. 13); L_CE alone at the first participation."""
        ce = k.ce(f)
        return torch.where(k.mine.times > 0, (1 - self.lam) * ce + self.lam * self.teach(f, k), ce)

    def inherit(self, trained: State, k: Context[Heirloom]) -> Heirloom:
        """Eq. 10, then BatchNorm statistics re-estimated on the client's data  (docs/papers/map.md §3.3)."""
        times = k.mine.times
        mu = (self.mu * times.to(torch.float64) / k.spec.expected_visits).clamp(0.0, 0.9).to(torch.float32)
        mixed = mu * k.mine.model + (1 - mu) * trained
        return Heirloom(k.reestimate(mixed.where(times > 0, trained).clone()), times + 1)

    def model(self, k: Context[Heirloom]) -> State:
        return k.mine.model


class InheritedWhileTraining(Inheritance):
    """FedPHP's single stage: eq. 13 is the shared objective and the uploaded model is also the one
    inherited.
    """

    def loss(self, f: Forward, k: Context[Heirloom]) -> Tensor:
        # CE + this is eq. 13
        return torch.where(k.mine.times > 0, self.lam * (self.teach(f, k) - k.ce(f)), 0.0)

    def finish(self, k: Context[Heirloom]) -> tuple[Heirloom, None]:
        return self.inherit(k.state, k), None


@checked
def fedphp(
    lam: TransferWeight = 0.1,
    mu: InheritedShare = 0.9,
    transfer: TransferLoss = "kd",
    kd_student_tau: StudentTemperature = 1.0,
    kd_tau_sq: TemperatureSquared = False,
) -> Method:
    """FedPHP: each client keeps an inherited private model (HPM) that teaches its local training.

    Equation:
        (1 − λ) L_CE + λ L_KT, then ψ ← μ_k ψ + (1 − μ_k) w_k (`Inheritance`). Personalization is scored on
        the HPM after its update.

    Source:
        Li et al., ECML-PKDD 2021. Row FedPHP of MAP's Tables I and II.

    Departure: the HPM's BatchNorm statistics are re-estimated as MAP's are (docs/papers/map.md §3.3). The
    released FedPHP leaves them as mixed.
    """
    return Method("FedPHP", personal=InheritedWhileTraining(lam, mu, transfer, kd_student_tau, kd_tau_sq))

"""MAP (Li et al., TKDE 2024, arXiv 2404.09232): restricted softmax for the server, inherited private model
for the client.

Stage 1 (RS, all E epochs) is uploaded; stage 2 starts from a copy of its result, trains with the plain
softmax and the HPM as teacher, and never leaves the client. MAP's server is therefore FedRS's and ScaMAP's is
ScaRS's, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from torch import Tensor

from raffed import Budget, Context, Forward, Method
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.methods.fedphp import (
    Heirloom,
    Inheritance,
    InheritedShare,
    StudentTemperature,
    TemperatureSquared,
    TransferLoss,
    TransferWeight,
)
from raffed.methods.fedrs import LeastSamples, LogitFactor, Restriction, RestrictionOrAuto, restricted
from raffed.methods.registry import Variant
from raffed.methods.scaffold import ServerRate, scaffold


class InheritedModel(Inheritance):
    """Stage 2: max(int(share · n₁), least) steps at rate lr_scale · η from a copy of ω_k; then eq. 10.

    n₁ is the number of stage-1 steps, and the momentum is the run's. The paper gives no budget. These numbers
    are the authors' code's (docs/papers/map.md §3.2).
    """

    share: float = 0.1
    lr_scale: float = 0.2
    least: int = 5

    private_scored = True  # ω^per beside the HPM that inherits it (docs/papers/map.md §7 no. 11)

    def budget(self, k: Context) -> Budget:
        return Budget(max(int(self.share * k.steps), self.least), self.lr_scale)

    def private_loss(self, f: Forward, k: Context[Heirloom]) -> Tensor:
        return self.taught(f, k)

    def finish(self, k: Context[Heirloom]) -> tuple[Heirloom, None]:
        assert k.private is not None
        return self.inherit(k.private, k), None


StageShare = Annotated[float, Range(0.0, 10.0), Doc("Steps of stage 2 as a share of those of stage 1.")]
StageRate = Annotated[
    float, Range(0.0, 10.0), Strength(), Doc("Learning rate of stage 2 as a share of the run's.")
]
StageLeast = Annotated[int, Range(0), Doc("Minimum number of steps of stage 2.")]


@checked
def map_(
    alpha: LogitFactor = 0.5,
    lam: TransferWeight = 0.1,
    mu: InheritedShare = 0.9,
    transfer: TransferLoss = "kd",
    mode: Restriction = "binary",
    n_min: LeastSamples = 1,
    kd_student_tau: StudentTemperature = 1.0,
    kd_tau_sq: TemperatureSquared = False,
    share: StageShare = 0.1,
    lr_scale: StageRate = 0.2,
    least: StageLeast = 5,
) -> Method:
    """MAP: restricted softmax for the server, an inherited private model for the client.

    Equation:
        Stage 1 is FedRS and is uploaded. Stage 2 trains (1 − λ) L_CE + λ L_KT from a copy of its result and
        mixes it into the inherited model (eqs. 8, 10 and 13). It comes on top of the E epochs; for the budget
        of the other methods train for 0.9 E (`--epochs 4.5`).

    Source:
        Li et al., TKDE 2024 (arXiv 2404.09232). Row MAP of Tables I, II and III.
    """
    inherited = InheritedModel(lam, mu, transfer, kd_student_tau, kd_tau_sq, share, lr_scale, least)
    return Method("MAP", head=restricted(alpha, mode, n_min), personal=inherited)


@checked
def scars(
    alpha: LogitFactor = 0.5,
    server_lr: ServerRate = 1.0,
    mode: RestrictionOrAuto = "auto",
    n_min: LeastSamples = 1,
    preset: Variant = "original",
) -> Method:
    """ScaRS: SCAFFOLD with the restricted softmax in local training.

    Equation:
        SCAFFOLD's on logit_c · α_{k,c}.

    Source:
        MAP (Li et al., TKDE 2024). Row Scaffold+RS of its Tables I and II.

    The preset "authors" is SCAFFOLD's, with mode uniform_bug where none is named, as in MAP's released code.
    That code tries (α, η_g) = (0.1, 0.5), (0.9, 0.75) and (0.5, 0.9).
    """
    head = restricted(alpha, mode, n_min, auto="uniform_bug" if preset == "authors" else "binary")
    return replace(scaffold(server_lr, preset), name="ScaRS", head=head)


@checked
def scamap(
    alpha: LogitFactor = 0.5,
    lam: TransferWeight = 0.1,
    mu: InheritedShare = 0.9,
    transfer: TransferLoss = "kd",
    server_lr: ServerRate = 1.0,
    mode: RestrictionOrAuto = "auto",
    n_min: LeastSamples = 1,
    kd_student_tau: StudentTemperature = 1.0,
    kd_tau_sq: TemperatureSquared = False,
    share: StageShare = 0.2,
    lr_scale: StageRate = 0.5,
    least: StageLeast = 5,
    preset: Variant = "original",
) -> Method:
    """ScaMAP: ScaRS for the server, MAP's inherited private model for the client.

    Equation:
        Stage 1 is ScaRS. Stage 2 is MAP's, with the run's momentum and without control variates.

    Source:
        MAP (Li et al., TKDE 2024). Row ScaMAP of its Tables I and II.

    The preset "authors" is ScaRS's and changes stage 1 alone. In stage 2 the released code departs from the
    paper: at a client's first visit an untrained private model teaches already. Here, as in the paper, no
    model teaches then (docs/papers/map.md §3.5).
    """
    inherited = InheritedModel(lam, mu, transfer, kd_student_tau, kd_tau_sq, share, lr_scale, least)
    return replace(scars(alpha, server_lr, mode, n_min, preset), name="ScaMAP", personal=inherited)

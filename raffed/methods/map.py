"""MAP (Li et al., TKDE 2024, arXiv 2404.09232): restricted softmax for the server, inherited private model
for the client.

Stage 1 (RS, all E epochs) is uploaded; stage 2 starts from a copy of its result, trains with the plain
softmax and the HPM as teacher, and never leaves the client. MAP's server is therefore FedRS's and ScaMAP's is
ScaRS's, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.method import Method
from raffed.core.parts import Budget
from raffed.errors import Preset, UsageError, by_authors, check_range
from raffed.methods.fedphp import Heirloom, Inheritance, Transfer, check_inheritance
from raffed.methods.fedrs import AutoMode, RestrictionMode, restricted
from raffed.methods.scaffold import scaffold


class InheritedModel(Inheritance):
    """Stage 2: max(int(share · n₁), least) steps at rate lr_scale · η, the run's momentum, from a copy of
    ω_k; then eq. 10.

        n₁ is the number of stage-1 steps. The paper gives no budget; these are the authors' code's
        (docs/papers/map.md §3.2).
    """

    share: float = 0.1
    lr_scale: float = 0.2
    least: int = 5

    private_scored = True  # ω^per beside the HPM that inherits it (docs/papers/map.md §7 no. 11)

    def budget(self, k: Context) -> Budget:
        return Budget(max(int(self.share * k.steps), self.least), self.lr_scale)

    def private_loss(self, f: Forward, k: Context) -> Tensor:
        return self.taught(f, k)

    def finish(self, k: Context) -> tuple[Heirloom, None]:
        assert k.private is not None
        return self.inherit(k.private, k), None


def _inherited(
    lam: float,
    mu: float,
    transfer: str,
    kd_student_tau: float,
    kd_tau_sq: bool,
    share: float,
    lr_scale: float,
    least: int,
) -> InheritedModel:
    check_inheritance(lam, mu, transfer, kd_student_tau)
    check_range("share", share, 0.0, 10.0)
    check_range("lr_scale", lr_scale, 0.0, 10.0)
    if least < 0:
        raise UsageError(f"least = {least}: the least number of stage-2 steps cannot be negative")
    return InheritedModel(lam, mu, transfer, kd_student_tau, kd_tau_sq, share, lr_scale, least)


def map_(
    alpha: float = 0.5,
    lam: float = 0.1,
    mu: float = 0.9,
    transfer: Transfer = "kd",
    mode: RestrictionMode = "binary",
    n_min: int = 1,
    kd_student_tau: float = 1.0,
    kd_tau_sq: bool = False,
    share: float = 0.1,
    lr_scale: float = 0.2,
    least: int = 5,
) -> Method:
    """MAP. α, mode, n_min as FedRS; λ, μ, transfer as FedPHP; stage 2: share of stage 1's steps, its rate,
    its least steps.

        Stage 2 comes on top of the E epochs; for the others' budget train for 0.9 E (`--epochs 4.5`). Row MAP
        of Tables I, II, III.
    """
    own = _inherited(lam, mu, transfer, kd_student_tau, kd_tau_sq, share, lr_scale, least)
    return Method("MAP", head=restricted(alpha, mode, n_min), personal=own)


def scars(
    alpha: float = 0.5,
    server_lr: float = 1.0,
    mode: AutoMode = "auto",
    n_min: int = 1,
    preset: Preset = "original",
) -> Method:
    """ScaRS: SCAFFOLD with the restricted softmax in local training. Row Scaffold+RS of Tables I and II.

    mode as FedRS. preset "authors" is SCAFFOLD's, and mode uniform_bug where none is named, as in MAP's
    released code, which tries (α, η_g) = (0.1, 0.5), (0.9, 0.75), (0.5, 0.9).
    """
    head = restricted(alpha, mode, n_min, auto="uniform_bug" if by_authors(preset) else "binary")
    return replace(scaffold(server_lr, preset), name="ScaRS", head=head)


def scamap(
    alpha: float = 0.5,
    lam: float = 0.1,
    mu: float = 0.9,
    transfer: Transfer = "kd",
    server_lr: float = 1.0,
    mode: AutoMode = "auto",
    n_min: int = 1,
    kd_student_tau: float = 1.0,
    kd_tau_sq: bool = False,
    share: float = 0.2,
    lr_scale: float = 0.5,
    least: int = 5,
    preset: Preset = "original",
) -> Method:
    """ScaMAP: ScaRS as stage 1 with MAP's stage 2 (the run's momentum, no control variates). Row ScaMAP of
    Tables I and II.

        preset "authors" is ScaRS's, and changes stage 1 alone. In stage 2 the released code departs from the
        paper: at a client's first visit an untrained private model teaches already. Here, as in the paper, no
        model teaches then (docs/papers/map.md §3.5).
    """
    own = _inherited(lam, mu, transfer, kd_student_tau, kd_tau_sq, share, lr_scale, least)
    return replace(scars(alpha, server_lr, mode, n_min, preset), name="ScaMAP", personal=own)

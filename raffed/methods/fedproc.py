"""FedProc (Mu et al. 2023): prototypical contrast that hands over to the cross-entropy as the rounds go
by.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Context, Forward, Method, Params, Received, Spec, Term
from raffed.config.validation import Doc, checked
from raffed.core.losses import one_hot
from raffed.methods.common import ClassSums, Prototypes, class_sums
from raffed.methods.fedmr import InterClass

PrototypeLoss = Literal["none", "fedproc", "fedmr"]
WithPrototypes = Annotated[
    PrototypeLoss,
    Doc("Prototype loss of FedMR's Table 8: none, FedProc's in place of the cross-entropy, or FedMR's."),
]


class PrototypeContrast(Term[None, ClassSums, Prototypes]):
    """The objective becomes α_t CE + (1 − α_t) L_pc, α_t = t/T; plain CE in round 0, where there are no
    prototypes.

    L_pc = −mean_n log( exp(ẑ_n·ĝ_{y_n}) / Σ_c exp(ẑ_n·ĝ_c) ), unit vectors, no temperature (the official
    code). A class without prototype counts exp(0) in the denominator and is not an anchor; the mean is over
    anchors. The official code normalises a projection that also feeds its classifier; here z is the input of
    the head and is normalised in L_pc only.
    """

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context[None, Prototypes]) -> Tensor:
        alpha = min(k.round / k.spec.rounds, 1.0) if k.round else 1.0
        if alpha == 1.0:  # round numbers are the same for all clients: this does not branch on a tensor
            return torch.zeros((), device=f.z.device)
        return (1 - alpha) * (prototype_contrast(f.z, f.y, k.server.mean, k.server.known) - k.ce(f))

    def finish(self, k: Context) -> tuple[None, ClassSums]:
        return None, class_sums(k, k.state)

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        return s if got.sum is None else s.updated(got.sum)


def prototype_contrast(z: Tensor, y: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """L_pc [] of z [B, D], y [B], prototypes g [C, D], known [C] bool; 0 without an anchor; prototypes
    get no gradient.
    """
    unit = F.normalize(torch.where(known[:, None], g, 0.0), dim=-1)
    log_share = (F.normalize(z, dim=-1) @ unit.to(z.dtype).T).log_softmax(-1)  # [B, C]
    anchor = one_hot(y, g.shape[0]).to(z.dtype) * known.to(z.dtype)
    return -(log_share * anchor).sum() / anchor.sum().clamp(min=1)


def prototype_terms(prototypes: str) -> tuple[Term, ...]:
    """What "with prototypes" adds to a baseline in FedMR's Table 8, which gives no formula.

    fedproc: CE is replaced as in FedProc, since the paper calls FedProc the prototype version of FedAvg.
    fedmr: the other reading, FedMR's inter-class term at its default μ2 = 0.1. none: nothing.
    """
    readings: dict[str, tuple[Term, ...]] = {
        "none": (),
        "fedproc": (PrototypeContrast(),),
        "fedmr": (InterClass(0.1),),
    }
    return readings[prototypes]


@checked
def fedproc() -> Method:
    """FedProc: a prototypical contrast hands over to the cross-entropy as the rounds go by.

    Equation:
        α_t CE + (1 − α_t) L_pc with α_t = t/T (`PrototypeContrast`). T is the run's number of rounds, where
        the official code fixes 100.

    Source:
        Mu et al. 2023. Row FedProc of FedMR's Table 1.
    """
    return Method("FedProc", terms=(PrototypeContrast(),))

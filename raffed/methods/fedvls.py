"""FedVLS (Guo et al. 2025): vacant classes are learnt from the downloaded model, other logits suppressed."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import one_hot
from raffed.methods.common import EPS, NEVER, BalancedSoftmax, Mode, distilled, divergence, teacher_logits


class VacantDistillation(Term):
    """λ KL(q_g ‖ q): both are softmaxes over the vacant classes, q of z and q_g of the teacher's logits.

    A class is vacant if the client has no sample of it. The term is the mean over the batch, in nats. With
    one vacant class or none it is 0.
    """

    lam: float
    teacher: str = "eval"

    def loss(self, f: Forward, k: Context) -> Tensor:
        vacant = k.class_counts == 0
        taught = distilled(teacher_logits(f, k, self.teacher), vacant)
        return self.lam * divergence(taught, f.logits, vacant)


class LogitSuppression(Term):
    """Lowers the logit of a class where the sample is of another class, as much as the class is frequent.

    It is `weight` times `suppression`, with p_c the client's share of class c.
    """

    weight: float
    form: str = "paper"

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.weight * suppression(f.logits, f.y, k.class_counts, self.form)


def suppression(z: Tensor, y: Tensor, counts: Tensor, form: str = "paper") -> Tensor:
    """Return Σ_c p_c log( mean_i 1(y_i ≠ c) e^{z_ic} ), p_c = n_c/n.

    paper: as printed. A class that fills the whole batch counts 0. A common shift of all logits shifts it,
    so it has no lower bound.
    code: z_ic is z_ic − log(p_c + 1e-9) + log(1/C + 1e-9), and the factor 1(y_i ≠ c) is in the exponent. So a
    sample of class c counts e^0 = 1.

    Args:
        z: Logits [B, C].
        y: Labels [B].
        counts: The client's class counts [C].
        form: "paper" or "code".
    """
    size, classes = z.shape
    other = one_hot(y, classes) == 0
    prior = counts / counts.sum()
    if form == "code":
        z = z - (prior + EPS).log() + math.log(1 / classes + EPS)
    entries = torch.where(other, z, 0.0 if form == "code" else NEVER)
    mean = entries.logsumexp(0) - math.log(size)
    return (prior * torch.where(mean > NEVER / 2, mean, 0.0)).sum()


@checked
def fedvls(
    lam: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the distillation of vacant classes.")
    ] = 0.1,
    suppress: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("Weight of the suppression of other classes' logits.")
    ] = 0.005,
    suppress_form: Annotated[
        Literal["paper", "code"],
        Doc("Form of the suppression: as the paper prints it, or as the released code computes it."),
    ] = "paper",
    teacher: Annotated[
        Mode, Doc("Mode of the downloaded model as a teacher: evaluation or training mode.")
    ] = "eval",
) -> Method:
    """FedVLS: local training by class prior, with the download as teacher of the classes that a client lacks.

    Equation:
        CE(z + log(p + 1e-9)) + λ KL(q_g ‖ q) over the vacant classes + w Σ_c p_c log mean_i 1(y_i ≠ c)
        e^{z_ic}, p the client's class shares and w = `suppress` (`BalancedSoftmax`, `VacantDistillation`,
        `LogitSuppression`). λ = w = 0 is PriorCE with missing = "eps".

    Source:
        Guo, Ding, Liang, Wang, He & Tan, AAAI 2025, pages 16960-16968, arXiv 2401.02329. λ = 0.1 is the
        paper's for MNIST and CIFAR-10; for CIFAR-100 and Tiny-ImageNet it has 0.5.

    Departures: the paper's eq. 3 prints the divergence with the opposite sign; this is the released code's.
    The weight 0.005 of the suppression is in the code only. The code's suppression has another form
    (suppress_form = "code"), its teacher is in training mode (teacher = "train"), and it trains FedVLS, but
    none of its baselines, without weight decay; here the run's weight decay applies.
    """
    terms = ((VacantDistillation(lam, teacher),) if lam else ()) + (
        (LogitSuppression(suppress, suppress_form),) if suppress else ()
    )
    return Method("FedVLS", head=BalancedSoftmax(1.0, missing="eps"), terms=terms)

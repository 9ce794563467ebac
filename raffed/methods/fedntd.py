"""FedNTD (Lee et al. 2022): the downloaded model teaches the logits of all classes but the true one."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import one_hot
from raffed.methods.common import Mode, distilled, divergence, teacher_logits


class NotTrueDistillation(Term):
    """β τ² KL(q_g ‖ q): both are softmaxes over the classes c ≠ y, q of z/τ and q_g of the teacher's z_g/τ.

    It is the sum over classes and the mean over the batch, in nats. The gradient with respect to z is
    β τ (q − q_g)/B, and exactly 0 at the true class.
    """

    beta: float
    tau: float
    teacher: str = "eval"

    def loss(self, f: Forward, k: Context) -> Tensor:
        other = one_hot(f.y, f.logits.shape[-1]) == 0
        taught = distilled(teacher_logits(f, k, self.teacher) / self.tau, other)
        return self.beta * self.tau**2 * divergence(taught, f.logits / self.tau, other)


@checked
def fedntd(
    beta: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("β, weight of the distillation; 0 is FedAvg.")
    ] = 1.0,
    tau: Annotated[float, Range(0.0, 1e3, open_low=True), Doc("τ, temperature of both softmaxes.")] = 1.0,
    teacher: Annotated[
        Mode, Doc("Mode of the downloaded model as a teacher: evaluation or training mode.")
    ] = "eval",
) -> Method:
    """FedNTD: local training keeps the downloaded model's view of the classes that are not a sample's own.

    Equation:
        CE + β τ² KL(q_g ‖ q), with softmaxes over c ≠ y of z_g/τ and z/τ (`NotTrueDistillation`). The
        download does not change in a round, so the term has no gradient in its first step. With two classes
        it is 0.

    Source:
        Lee, Jeong, Shin, Bae & Yun, NeurIPS 2022, arXiv 2106.03097. β = 1 and τ = 1 are those of the authors'
        configuration; their class has τ = 3. FedVLS's comparison (Guo et al. 2025) has β = 0.1.

    Departure: the authors copy the model before they put it in training mode. So their teacher is in
    evaluation mode, but for the first client that trains in a run. Here it always is, unless `teacher` is
    "train", as in FedVLS's code. Without BatchNorm and dropout both are the same.
    """
    return Method("FedNTD", terms=(NotTrueDistillation(beta, tau, teacher),) if beta else ())

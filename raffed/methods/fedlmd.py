"""FedLMD (Lu et al. 2023): the downloaded model teaches the classes of which a client has few samples."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import one_hot
from raffed.methods.common import distilled, divergence, teacher_logits

Teacher = Literal["eval", "train", "none"]


class LabelMaskingDistillation(Term):
    """β τ² KL(p_t ‖ p_s): p_s is the softmax of z/τ over c ≠ y, and p_t lies on minority classes c ≠ y only.

    p_t is the softmax of the teacher's z_g/τ there, or uniform there without a teacher. A class is of the
    majority if the client has more of its samples than the mean over all C classes. It is the sum over
    classes and the mean over the batch, in nats. A sample whose class is the only minority class counts 0.
    """

    beta: float
    tau: float
    teacher: str = "eval"

    def loss(self, f: Forward, k: Context) -> Tensor:
        classes = f.logits.shape[-1]
        other = one_hot(f.y, classes) == 0
        minority = k.class_counts * classes <= k.class_counts.sum()
        given = (
            torch.zeros_like(f.logits)  # the softmax of equal logits is uniform
            if self.teacher == "none"
            else teacher_logits(f, k, self.teacher)
        )
        taught = distilled(given / self.tau, other & minority)
        return self.beta * self.tau**2 * divergence(taught, f.logits / self.tau, other)


@checked
def fedlmd(
    beta: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("β, weight of the distillation; 0 is FedAvg.")
    ] = 1.0,
    tau: Annotated[float, Range(0.0, 1e3, open_low=True), Doc("τ, temperature of both softmaxes.")] = 1.0,
    teacher: Annotated[
        Teacher,
        Doc(
            "Teacher: the downloaded model in evaluation or training mode, or none for equal shares of the "
            "minority classes."
        ),
    ] = "eval",
) -> Method:
    """FedLMD: local training keeps the downloaded model's view of the classes of which a client has few.

    Equation:
        CE + β τ² KL(p_t ‖ p_s), p_s = softmax(z/τ) over c ≠ y, p_t = softmax(z_g/τ) over the minority classes
        c ≠ y (`LabelMaskingDistillation`). With teacher = none it is the paper's teacher-free variant: p_t is
        uniform over these classes, and no second forward pass is needed.

    Source:
        Lu, Li, Bao, Wang, Qian & Ge, ACM MM 2023, pages 222-232. β = 1 and τ = 1 are those of the authors'
        configuration. FedVLS's comparison (Guo et al. 2025) has β = 0.1.

    Departures: the authors mask by −1000 in place of −∞. So if a sample's class is the client's only minority
    class, their teacher puts its mass on that class, which the student's softmax does not have, and the term
    jumps to about 1000 times that mass. Here such a sample counts 0. Their code without a teacher divides by
    C − B − 1 with the batch size B in place of the number of majority classes, and cannot be called as it
    stands; here the shares of the classes sum to one. Their teacher is in training mode for the first client
    of a run, as FedNTD's.
    """
    return Method("FedLMD", terms=(LabelMaskingDistillation(beta, tau, teacher),) if beta else ())

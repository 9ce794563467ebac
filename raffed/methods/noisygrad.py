"""FedAvg with noise on every gradient, the defence that Zhu et al. (2019, "Deep Leakage from Gradients",
§5.1) try first.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked

NoiseKind = Literal["gaussian", "laplace"]
Meaning = Literal["variance", "scale"]


def noise(count: int, kind: str, size: float, meaning: str, generator: torch.Generator) -> Tensor:
    """`count` independent numbers [count] of mean 0. meaning "variance": of variance `size`, whatever the
    kind; "scale": `size` is the distribution's own parameter, σ of a Gaussian and b of a Laplace distribution
    (variance 2b²).

    The same generator gives the same numbers for every size, stretched.
    """
    if kind == "gaussian":
        return torch.randn(count, generator=generator) * (math.sqrt(size) if meaning == "variance" else size)
    u = torch.rand(count, generator=generator) - 0.5
    # At −1/2 the logarithm would be infinite
    unit = -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.5 - 2.0**-25))
    return unit * (math.sqrt(size / 2) if meaning == "variance" else size)


class GradientNoise(Term):
    """⟨ε, w⟩ with fresh ε in every step: a term whose gradient is ε, so ∇ ← ∇ + ε before clipping, momentum
    and weight decay.

    The loss that clients report contains it.
    """

    kind: str
    size: float
    meaning: str

    purpose = "noise"

    def draw(self, batch: int, k: Context, generator: torch.Generator) -> Tensor | None:
        """ε [P], a number for every weight."""
        return noise(k.w0.numel(), self.kind, self.size, self.meaning, generator) if self.size else None

    def loss(self, f: Forward, k: Context) -> Tensor:
        total = torch.zeros((), device=f.z.device, dtype=f.z.dtype)
        if k.drawn is None:
            return total
        at = 0
        for t in f.w.tensors.values():
            total = total + (k.drawn[at : at + t.numel()].view(t.shape).to(t) * t).sum()
            at += t.numel()
        return total


@checked
def noisygrad(
    kind: Annotated[NoiseKind, Doc("Distribution of the noise.")] = "gaussian",
    size: Annotated[float, Range(0.0, 1e6), Strength(), Doc("Size of the noise; 0 is FedAvg.")] = 1e-4,
    meaning: Annotated[
        Meaning, Doc("What size is: the noise's variance, or the distribution's own scale (`noise`).")
    ] = "variance",
) -> Method:
    """FedAvg with noise on every entry of every gradient, as a defence against reconstruction.

    Equation:
        ∇ ← ∇ + ε before clipping, momentum and weight decay (`GradientNoise`).

    Source:
        Zhu et al. 2019, §5.1. Rows Gaussian and Laplace of MpFedcon's Table 4, which writes of the variance.
        Its accuracies are those that Zhu et al. print, and name no data set.
    """
    return Method("FedAvg with noise", terms=(GradientNoise(kind, size, meaning),) if size else ())

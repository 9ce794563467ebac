"""FedAvg with noise on every gradient, the defence that Zhu et al. (2019, "Deep Leakage from Gradients",
§5.1) try first.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.method import Method
from raffed.errors import check_choice, check_range

NoiseKind = Literal["gaussian", "laplace"]
KINDS: tuple[str, ...] = get_args(NoiseKind)
Meaning = Literal["variance", "scale"]
MEANINGS: tuple[str, ...] = get_args(Meaning)


def noise(count: int, kind: str, size: float, meaning: str, generator: torch.Generator) -> Tensor:
    """`count` independent numbers [count] of mean 0. meaning "variance": of variance `size`, whatever the
    kind; "scale": `size` is the distribution's own parameter, σ of a Gaussian and b of a Laplace distribution
    (variance 2b²).

    The same generator gives the same numbers for every size, stretched.
    """
    if kind == "gaussian":
        return torch.randn(count, generator=generator) * (math.sqrt(size) if meaning == "variance" else size)
    u = torch.rand(count, generator=generator) - 0.5
    unit = -u.sign() * torch.log1p(
        -2 * u.abs().clamp(max=0.5 - 2.0**-25)
    )  # at −1/2 the logarithm would be infinite
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


def noisygrad(kind: NoiseKind = "gaussian", size: float = 1e-4, meaning: Meaning = "variance") -> Method:
    """FedAvg with noise of this kind and size on every entry of every gradient; size 0 is FedAvg.

    meaning: what size is, the "variance" as MpFedcon writes, or the "scale" (`noise`). Rows Gaussian and
    Laplace of MpFedcon's Table 4; its accuracies are those that Zhu et al. print and name no data set.
    """
    check_choice("kind", kind, KINDS)
    check_choice("meaning", meaning, MEANINGS)
    check_range("size", size, 0.0, 1e6)
    return Method("FedAvg with noise", terms=(GradientNoise(kind, size, meaning),) if size else ())

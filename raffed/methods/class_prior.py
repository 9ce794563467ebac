"""Logits with the log of the client's class prior: the balanced softmax, which several methods train by."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.ingredients import Head

MissingClass = Literal["mask", "eps", "one"]
EPS = 1e-9  # added to the prior by "eps"; log 1e-9 = −20.72


class BalancedSoftmax(Head):
    """z + log n_k^γ in training only, with n_k the client's class counts.

    Constants cancel in a softmax, so counts and shares n_k/Σn are the same. `missing` says what a class
    without samples gets. "mask": log 0 = −∞, so it has probability 0 and no gradient. "eps": γ log(n_c/Σn +
    1e-9), hardly any gradient. "one": a count of 1, so it is pushed down as a class with one sample is.

    If `multiplicative`, the logits are (4·n_c/Σn)^γ z_c, as in MAP's released code, which keeps the 4 for
    every C. That is not a balanced softmax: a missing class has logit 0.
    """

    gamma: float
    multiplicative: bool = False
    missing: str = "mask"

    @property
    def smooths(self) -> bool:
        return self.multiplicative or self.missing != "mask"

    def logits(self, a: Tensor, k: Context) -> Tensor:
        n = k.class_counts.to(torch.float32)
        if self.multiplicative:
            return a * (4 * n / n.sum()).pow(self.gamma)
        return a + log_prior(n, self.gamma, self.missing)


def log_prior(n: Tensor, gamma: float, missing: str = "mask") -> Tensor:
    """γ log n_c [C] up to a constant, from class counts [C] in float32 (`BalancedSoftmax`)."""
    if missing == "eps":
        return gamma * (n / n.sum() + EPS).log()
    known = n.clamp(min=1) if missing == "one" else n
    powers = known.pow(gamma).log()  # the log of the power: γ log n would be 0 · (−∞) at γ = 0
    return torch.where(powers == torch.inf, gamma * known.clamp(min=1).log(), powers)  # n^γ above 3.4e38

"""The optimisers with which clients can train, and their arguments. This module imports no torch.

The arithmetic is in `raffed.core.training.optimizers`. The learning rate and the weight decay of every
optimiser are those of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from raffed.config.validation import Doc, Range

BetaOne = Annotated[float, Range(0.0, 0.999999), Doc("β₁, decay of the mean of the gradients.")]
BetaTwo = Annotated[float, Range(0.0, 0.999999), Doc("β₂, decay of the mean of their squares.")]
Epsilon = Annotated[float, Range(0.0, 1.0, open_low=True), Doc("ε, added to the denominator.")]
Amsgrad = Annotated[bool, Doc("Whether the largest mean of squares so far is used (AMSGrad).")]


@dataclass(frozen=True)
class Sgd:
    """SGD. Its momentum is that of the run."""

    nesterov: Annotated[bool, Doc("Whether the momentum is Nesterov's.")] = False


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015). The weight decay is added to the gradient."""

    beta1: BetaOne = 0.9
    beta2: BetaTwo = 0.999
    eps: Epsilon = 1e-8
    amsgrad: Amsgrad = False


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): w ← (1 − η · wd) w before each step."""


@dataclass(frozen=True)
class RMSprop:
    """RMSprop (Tieleman & Hinton 2012). The weight decay is added to the gradient."""

    alpha: Annotated[float, Range(0.0, 0.999999), Doc("α, decay of the mean of squares.")] = 0.99
    eps: Epsilon = 1e-8
    momentum: Annotated[float, Range(0.0, 0.9999), Doc("Momentum of the scaled gradients.")] = 0.0
    centered: Annotated[bool, Doc("Whether the squared mean is subtracted from the mean of squares.")] = False


@dataclass(frozen=True)
class Adagrad:
    """Adagrad (Duchi et al. 2011). The weight decay is added to the gradient."""

    lr_decay: Annotated[
        float, Range(0.0, 1e3), Doc("The rate of step s is η / (1 + (s − 1) · lr_decay).")
    ] = 0.0
    initial: Annotated[float, Range(0.0, 1e6), Doc("Sum of squares with which training begins.")] = 0.0
    eps: Annotated[float, Range(0.0, 1.0, open_low=True), Doc("ε, added to the denominator.")] = 1e-10


Arguments: TypeAlias = Sgd | Adam | AdamW | RMSprop | Adagrad
OPTIMIZERS: dict[str, type[Arguments]] = {
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adagrad": Adagrad,
}

__all__ = ["OPTIMIZERS", "Adagrad", "Adam", "AdamW", "Arguments", "RMSprop", "Sgd"]

"""Optimisers and learning-rate schedules of clients, and their arguments. This module imports no torch.

The arithmetic is in `raffed.core.training.optimizers`. The learning rate and the weight decay of every
optimiser are those of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from raffed.config.validation import Declaration, Doc, Range, declarations

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


# Schedules of the learning rate: functions from how far training is to a factor of the rate.
#
# A schedule is a function `schedule(done, total, **arguments)`. `done` counts what has been completed, from
# 0, and `total` is its number in the whole run. Which unit both count (rounds, epochs or steps) is the
# setting `schedule_by`, so that each schedule is written once. The learning rate is that of the run, times
# the factor of the warm-up, times this factor.
#
# A schedule of one's own is such a function, named by reference, as in `--schedule ./file.py:NAME`. Its
# further arguments are set by `--schedule-arg`.


Schedule = Callable[..., float]
CLOCK = ("done", "total")  # the arguments that every schedule gets
Gamma = Annotated[float, Range(0.0, 10.0, open_low=True), Doc("γ, factor of one decay.")]
Lowest = Annotated[float, Range(0.0, 1.0), Doc("Factor that is reached at the end.")]


def constant(done: int, total: int) -> float:
    """Return 1: the learning rate stays as it is.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
    """
    return 1.0


def step(
    done: int,
    total: int,
    *,
    every: Annotated[int, Range(1), Doc("Number of units between two decays.")] = 10,
    gamma: Gamma = 0.1,
) -> float:
    """Return γ^⌊done / every⌋, as torch's `StepLR`.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
        every: Number of units between two decays.
        gamma: Factor γ of one decay.
    """
    return gamma ** (done // every)


def multistep(
    done: int,
    total: int,
    *,
    milestones: Annotated[Sequence[int], Range(1), Doc("When the rate decays, in units from the start.")] = (
        30,
        60,
        80,
    ),
    gamma: Gamma = 0.1,
) -> float:
    """Return γ to the number of milestones that have been reached, as torch's `MultiStepLR`.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
        milestones: When the rate decays, in units from the start.
        gamma: Factor γ of one decay.
    """
    return gamma ** sum(one <= done for one in milestones)


def exponential(done: int, total: int, *, gamma: Gamma = 0.99) -> float:
    """Return γ^done, as torch's `ExponentialLR`.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
        gamma: Factor γ of one decay.
    """
    return gamma**done


def cosine(done: int, total: int, *, lowest: Lowest = 0.0) -> float:
    """Return l + (1 − l)(1 + cos(π · done / total))/2, as torch's `CosineAnnealingLR` with T_max = total.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
        lowest: Factor l that is reached at the end.
    """
    return lowest + (1 - lowest) * (1 + math.cos(math.pi * min(done, total) / total)) / 2


def polynomial(
    done: int,
    total: int,
    *,
    power: Annotated[float, Range(0.0, 100.0, open_low=True), Doc("Power p; 1 is a straight line.")] = 1.0,
    lowest: Lowest = 0.0,
) -> float:
    """Return l + (1 − l)(1 − done / total)^p, as torch's `PolynomialLR` with total_iters = total.

    Args:
        done: What has been completed, counted from 0.
        total: Its number in the whole run.
        power: Power p.
        lowest: Factor l that is reached at the end. torch has l = 0.
    """
    return lowest + (1 - lowest) * float((1 - min(done, total) / total) ** power)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "step": step,
    "multistep": multistep,
    "exponential": exponential,
    "cosine": cosine,
    "polynomial": polynomial,
}


def schedule_arguments(schedule: Schedule) -> Mapping[str, Declaration]:
    """Return what a schedule declares about its arguments, without the two that it always gets.

    Args:
        schedule: A function `schedule(done, total, **arguments)`.
    """
    known = list(declarations(schedule).items())
    return dict(known[len(CLOCK) :])

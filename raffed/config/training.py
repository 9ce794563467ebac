"""How clients train: the part of a run's configuration that raffed.core uses. It imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from raffed.config.validation import Declaration, Doc, Range, Value, check_values, declarations
from raffed.errors import UnknownNameError, UsageError
from raffed.own.located import is_reference
from raffed.own.names import as_name

# Optimisers of clients. The arithmetic is in `raffed.core.training.optimizers`. The learning rate and the
# weight decay of every optimiser are those of the run.


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
    return gamma ** sum(milestone <= done for milestone in milestones)


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


CONSTANT = "constant"  # the schedule that changes nothing
USUAL_MOMENTUM = 0.9


@dataclass(frozen=True)
class Local:
    """How every client trains in a round.

    The default is SGD with momentum at a constant rate. A method may override some of these settings;
    docs/training.md lists which. The number of local steps is max(int(epochs · batches per epoch),
    min_steps). An epoch has ⌈n/B⌉ batches for n samples, and the last batch may be short.

    Raises:
        UsageError: An argument of the optimiser or of the schedule does not exist or is outside its range,
            or a setting would have no effect beside another one.
    """

    lr: Annotated[float, Range(0.0, 1e3), Doc("Learning rate η.")] = 0.03
    momentum: Annotated[
        float,
        Range(0.0, 0.9999),
        Doc("Momentum ρ of SGD. The velocity is zero at the start of every training phase."),
    ] = USUAL_MOMENTUM
    weight_decay: Annotated[
        float, Range(0.0, 10.0), Doc("Factor of the weights that is added to the gradient.")
    ] = 1e-5
    batch_size: Annotated[int, Range(1), Doc("Samples B in a mini-batch.")] = 64
    epochs: Annotated[
        float,
        Range(0.0, 1e4, open_low=True),
        Doc("Passes over the client's training samples in a round; 0.5 is half of one."),
    ] = 5.0
    epochs_to: Annotated[
        int,
        Range(0),
        Doc(
            "Largest number of epochs; 0: every client makes `epochs`. Otherwise every client draws a whole "
            "number from `epochs` to this one, in every round."
        ),
    ] = 0
    drop_last: Annotated[
        bool,
        Doc(
            "Whether the short last batch of an epoch is left out. An epoch then has ⌊n/B⌋ batches, and a "
            "client with fewer than B samples still has one batch."
        ),
    ] = False
    min_steps: Annotated[int, Range(1), Doc("Minimum number of local steps per client and round.")] = 1
    clip_norm: Annotated[
        float | None,
        Range(0.0, 1e9, open_low=True),
        Doc("Largest global norm of a gradient. Longer gradients are scaled down to it."),
    ] = None
    warmup_rounds: Annotated[
        int,
        Range(0),
        Doc(
            "Number r of rounds over which the learning rate rises; 0: no warm-up. The rate is "
            "η · min((t + 1)/r, 1), with t counted from 0."
        ),
    ] = 0
    schedule: Annotated[
        str,
        Doc(
            "How the learning rate changes over the run: constant, step, multistep, exponential, cosine, "
            "polynomial, or ./file.py:NAME for your own. It begins after the warm-up. In Python it may be "
            "the function itself, which is stored as its reference."
        ),
    ] = CONSTANT
    schedule_args: Annotated[
        Mapping[str, Value], Doc("Argument of the schedule, such as gamma=0.5; repeat for more.")
    ] = field(default_factory=dict, hash=False)
    schedule_by: Annotated[
        Literal["round", "epoch", "step", "local_step"],
        Doc(
            "What the schedule counts. round: rounds of the run, epoch: a client's epochs over the run, "
            "step: its steps over the run, local_step: its steps within a round, anew in each."
        ),
    ] = "round"
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw", "rmsprop", "adagrad"], Doc("Optimiser of local training.")
    ] = "sgd"
    optimizer_args: Annotated[
        Mapping[str, Value], Doc("Argument of the optimiser, such as beta1=0.95; repeat for more.")
    ] = field(default_factory=dict, hash=False)
    keep_optimizer: Annotated[
        bool,
        Doc(
            "Whether a client keeps the state of its optimiser from one round to the next. Otherwise it is "
            "reset at the start of every training phase."
        ),
    ] = False
    clip_value: Annotated[
        float | None,
        Range(0.0, 1e9, open_low=True),
        Doc("Largest absolute value of each number of a gradient; clip_norm is applied afterwards."),
    ] = None
    label_smoothing: Annotated[
        float,
        Range(0.0, 1.0),
        Doc("ε of the cross-entropy in training: a label has 1 − ε, and ε is spread over all classes."),
    ] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", as_name(self.schedule))
        if isinstance(self.optimizer, str) and self.optimizer in OPTIMIZERS:
            known = declarations(OPTIMIZERS[self.optimizer])
            self._settle("optimizer_args", f"optimizer {self.optimizer}", known)
        if isinstance(self.schedule, str) and self.schedule in SCHEDULES:
            known = schedule_arguments(SCHEDULES[self.schedule])
            self._settle("schedule_args", f"schedule {self.schedule}", known)
        elif isinstance(self.schedule, str) and not is_reference(self.schedule):
            raise UnknownNameError("local.schedule", self.schedule, SCHEDULES)
        self._check_effective()

    def _settle(self, field: str, owner: str, known: Mapping[str, Declaration]) -> None:
        """Check arguments, and store them in one spelling."""
        given = getattr(self, field)
        if isinstance(given, Mapping):
            object.__setattr__(self, field, check_values(owner, known, given))

    def _check_effective(self) -> None:
        """Refuse settings that another one makes ineffective."""
        if self.schedule == CONSTANT and self.schedule_by != "round":
            raise UsageError(
                f"local.schedule_by = {self.schedule_by!r} has no effect without a schedule; also give "
                "--schedule"
            )
        if self.optimizer != "sgd" and self.momentum != USUAL_MOMENTUM:
            raise UsageError(
                f"local.momentum = {self.momentum} is the momentum of sgd and has no effect with "
                f"local.optimizer = {self.optimizer!r}; leave it out, or see its --optimizer-arg"
            )
        nesterov = isinstance(self.optimizer_args, Mapping) and self.optimizer_args.get("nesterov")
        if nesterov and not self.momentum:
            raise UsageError("local.optimizer_args: nesterov needs local.momentum above 0")
        if self.keep_optimizer and self.optimizer == "sgd" and not self.momentum:
            raise UsageError(
                "local.keep_optimizer has no effect with local.momentum = 0, since SGD keeps nothing then; "
                "leave it out"
            )

    def warmth(self, round: int) -> float:
        """Return the fraction of the learning rate that is used in a round, counted from 0; at most 1.

        During warm-up it is (round + 1) / warmup_rounds.
        """
        return min((round + 1) / self.warmup_rounds, 1.0) if self.warmup_rounds else 1.0

    def rate(self, round: int) -> float:
        return self.lr * self.warmth(round)

    def batches(self, n: int) -> int:
        """Return the number of batches in an epoch of a client with n training samples."""
        whole = self.drop_last and n >= self.batch_size
        return n // self.batch_size if whole else -(-n // self.batch_size)

    def steps(self, n: int, epochs: float | None = None) -> int:
        """Return the number of local steps of a client.

        Args:
            n: Training samples of the client.
            epochs: Passes over these samples, or None for the run's `epochs`, or for their expected number if
                they are drawn.
        """
        times = self.expected_epochs if epochs is None else epochs
        return max(int(times * self.batches(n)), self.min_steps)

    @property
    def expected_epochs(self) -> float:
        """The passes over a client's samples; if their number is drawn, its expectation."""
        return (self.epochs + self.epochs_to) / 2 if self.epochs_to else self.epochs

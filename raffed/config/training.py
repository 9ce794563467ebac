"""How clients train: the part of a run's configuration that raffed.core uses. It imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from raffed.config.optimizers import OPTIMIZERS, SCHEDULES, schedule_arguments
from raffed.config.validation import Declaration, Doc, Range, Value, check_values, declarations
from raffed.errors import UnknownNameError, UsageError
from raffed.own.located import is_reference
from raffed.own.names import as_name

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

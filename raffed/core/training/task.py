"""A training phase of one client as data, and what a client keeps of its optimiser from round to round.

A round consists of a few training phases per client: the passes of shared training, then private training.
`TrainingPhase` holds what differs between clients, and `ClientTask` holds what is minimised, which is the
same for all of them. Phases are executed one after the other (session.py) or stacked
(stacked/executor.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from raffed.core.context import NOTHING, ClientData, Context, Forward
from raffed.core.ingredients import Ingredient, LocalSolver, Term
from raffed.core.messages import Private
from raffed.core.params import Params, Record, State
from raffed.core.parts import Part
from raffed.core.training.network import Network
from raffed.core.training.optimizers import Optimizer, SgdRule

# Settings of the optimiser in one training phase, and the weights of one client that it steps.


@dataclass(frozen=True)
class Solver:
    """Settings of the optimiser in one training phase.

    Attributes:
        lr: Learning rate η of its steps, where a phase does not have a rate for each step.
        momentum: Momentum ρ of SGD. The velocity is zero at the start of the phase. There is no dampening.
        weight_decay: Weight decay wd.
        clip_norm: Largest norm of a gradient, or None.
        clip_value: Largest absolute value of a number of a gradient, or None. It is applied first.
        optimizer: The optimiser, or None for SGD with this momentum.
        label_smoothing: ε of the cross-entropy, in [0, 1].
        kept: Whether the state of the optimiser is returned at the end.
    """

    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None = None
    clip_value: float | None = None
    optimizer: Optimizer | None = None
    label_smoothing: float = 0.0
    kept: bool = False

    @property
    def rule(self) -> Optimizer:
        """The optimiser."""
        return SgdRule(self.momentum) if self.optimizer is None else self.optimizer


class Stepper:
    """The weights of one client with the optimiser that steps them.

    Args:
        solver: Settings of the optimiser.
        weights: The weights, which are changed in place.
        names: A name for each of them.
        begun: State of the optimiser from which it goes on, or None to begin anew.
        moments: Moments of zero to begin with, which are changed in place, or None to make some.
    """

    def __init__(
        self,
        solver: Solver,
        weights: list[Tensor],
        names: Sequence[str],
        begun: OptimizerState | None,
        moments: Mapping[str, list[Tensor]] | None = None,
    ) -> None:
        self._rule, self._decay = solver.rule, solver.weight_decay
        self._weights, self._names = weights, names
        self._count = 0 if begun is None else int(begun.count)
        if begun is not None:
            self._moments = begun.loaded(self._rule.moments, names)
        else:
            self._moments = self._rule.begin(weights) if moments is None else dict(moments)

    def begin(self) -> None:
        """Count a step. It is done before every step, because a recorded one does not come here again."""
        self._count += 1

    def step(self, grads: list[Tensor], lr: float) -> None:
        """Move the weights along the gradients at the rate `lr`, after `begin`."""
        self._rule.step(
            self._weights, grads, self._moments, lr, self._decay, self._count, fresh=self._count == 1
        )

    def state(self) -> OptimizerState:
        """Return the state of the optimiser after the steps so far."""
        return OptimizerState.of(self._count, self._names, self._moments)


Views = dict[str, Context]
Objective = Callable[[Forward, Views], Tensor]
# (gradient, weights at which it was taken, views) → gradient
Correct = Callable[[Params, Params, Views], Params]
# (weights after the optimiser's step, its learning rate, views) → weights
AfterStep = Callable[[Params, float | Tensor, Views], Params]
# (gates, their gradient, the learning rate, the number of the step) → gates
UpdateGates = Callable[[Params, Params, float, Tensor], Params]


@dataclass(frozen=True)
class Augmentation:
    """A random change of images.

    Attributes:
        draw: Function from (B, generator) to random numbers [B, ...].
        apply: Function from (x [B, ...], numbers) to the changed batch, row by row.
    """

    draw: Callable[[int, torch.Generator], Tensor]
    apply: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return self.apply(x, self.draw(len(x), generator))


@dataclass(frozen=True)
class ClientTask:
    """What every client minimises in a training phase, and how its steps are corrected."""

    objective: Objective
    solver: Solver
    part: Part = "all"
    correct: Correct | None = None
    after_step: AfterStep | None = None
    gates: tuple[str, ...] = ()  # parameters that `update_gates` moves
    update_gates: UpdateGates | None = None
    jointly: bool = False  # weights and companion are clipped by one norm of both
    rule: LocalSolver | None = None  # None: SGD
    draws: Mapping[str, Term] = field(default_factory=dict)  # terms with random numbers, by slot
    notes: Mapping[str, Term] = field(
        default_factory=dict
    )  # terms that note something in every step, by slot
    cross_entropy_only: bool = False  # the objective is only the cross-entropy
    slot: str = "solver"  # of the rule
    repeats: bool = False  # every step is the same operations on the same tensors (recorded_steps.py)


@dataclass(frozen=True)
class TrainingPhase:
    """One client's part in a training phase: its start, batches, data, memories and random streams.

    `batches` are indices into the client's data. `rates` are the learning rates of its steps, or None for
    that of the solver. `optimizer` is the state from which its optimiser goes on.
    """

    start: State
    batches: Sequence[Tensor]
    data: ClientData
    views: Views
    own: Params | None = None  # the companion
    augment: torch.Generator | None = None
    dropout: torch.Generator | None = None
    drawn: Mapping[str, torch.Generator] = field(default_factory=dict)
    rates: Sequence[float] | None = None
    optimizer: OptimizerState | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a training phase.

    Attributes:
        state: The trained model.
        loss: Mean of the objective (with all terms) over the samples seen, as they were trained.
        steps: Number of steps.
        own: The trained companion.
        carried: What the local solver ended with.
        noted: Sums of what terms noted (`Term.note`), by slot.
        optimizer: The state of the optimiser at the end, if `Solver.kept` asks for it.
    """

    state: State
    loss: float
    steps: int
    own: Params = NOTHING
    carried: Record | None = None
    noted: Mapping[str, Tensor] = field(default_factory=dict)
    optimizer: OptimizerState | None = None


Execute = Callable[[Network, ClientTask, Sequence[TrainingPhase], Augmentation | None], list[Trained]]


def with_draws(views: Views, drawn: Mapping[str, Tensor]) -> Views:
    """Return the views of one step, with each term's random numbers in its own context."""
    return (
        {**views, **{slot: views[slot].replace(drawn=value) for slot, value in drawn.items()}}
        if drawn
        else views
    )


def draws_of(task: ClientTask, phase: TrainingPhase, batch: int) -> dict[str, Tensor]:
    """Return one step's random numbers of the terms that need some, from the client's own streams."""
    draw = {slot: term.draw(batch, phase.views[slot], phase.drawn[slot]) for slot, term in task.draws.items()}
    return {slot: value for slot, value in draw.items() if value is not None}


def notes_of(task: ClientTask, f: Forward, views: Views) -> dict[str, Tensor]:
    """Return what the terms note before a step, without gradient."""
    with torch.no_grad():
        notes = {slot: term.note(f, views[slot]) for slot, term in task.notes.items()}
    return {slot: value for slot, value in notes.items() if value is not None}


def add_notes(total: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    """Add the notes of a step to their sums in place. A recorded step adds them there when it is repeated."""
    for slot, value in more.items():
        if slot in total:
            total[slot] += value
        else:
            total[slot] = value.clone()


def name_of(task: ClientTask, phases: Sequence[TrainingPhase], *, stacked: bool = False) -> str:
    """Return a name of what is trained, under which steps are recorded, or "" if they do not repeat.

    A recording would repeat the numbers that dropout draws within a step. They are drawn beforehand in a
    stack and by `sgd`, but not where a local solver makes several passes in one step of a client alone.
    """
    within = not stacked and task.rule is not None and any(phase.dropout is not None for phase in phases)
    if not task.repeats or within:
        return ""
    return f"{task.objective.__qualname__} of {task.part}{' in stacks' if stacked else ''}"


class OptimizerState(Private):
    """The state of an optimiser after a training phase.

    Attributes:
        count: Number of steps that it has made, [] int64.
        moments: Its moments, each named `moment.weight`.
    """

    count: Tensor
    moments: Params

    @staticmethod
    def of(count: int, names: Sequence[str], moments: Mapping[str, Sequence[Tensor]]) -> OptimizerState:
        """Return a state as own copies.

        Args:
            count: Number of steps that the optimiser has made.
            names: Names of the weights.
            moments: Name of a moment → a tensor for each weight.
        """
        flat = {
            f"{moment}.{name}": tensor
            for moment, tensors in moments.items()
            for name, tensor in zip(names, tensors, strict=True)
        }
        return OptimizerState(torch.tensor(count), Params(flat).clone())

    def loaded(self, moments: Sequence[str], names: Sequence[str]) -> dict[str, list[Tensor]]:
        """Return copies of the moments, which may be changed, as name of a moment → a tensor for each weight.

        Args:
            moments: Names of the moments.
            names: Names of the weights.
        """
        return {moment: [self.moments[f"{moment}.{name}"].clone() for name in names] for moment in moments}


class OptimizerMemory(Private):
    """The states of a client's optimiser, by training phase."""

    phases: dict[str, OptimizerState]


class KeptOptimizer(Ingredient[OptimizerMemory]):
    """The optimiser of local training keeps its state from round to round (`Local.keep_optimizer`).

    Each pass of shared training and private training have their own state. The state begins with the
    client's first participation and never leaves the client.
    """

    def client_init(self, k: Context) -> OptimizerMemory:
        return OptimizerMemory({})

"""A stretch of one client's training as data, and its execution one client after the other; `stacked.py` has
the other way.

A round is a few stretches per client: the shared passes, then private training. What an execution needs to
know of one stands in `TrainingPhase`; what is minimised stands in `ClientTask`, the same for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from raffed.core.context import ClientData, Context, Forward
from raffed.core.ingredients import LocalSolver, Term
from raffed.core.params import Params, State
from raffed.core.parts import Part
from raffed.core.training.network import Network
from raffed.core.training.sgd import Solver, Trained, UpdateGates

Views = dict[str, Context]
Objective = Callable[[Forward, Views], Tensor]
Correct = Callable[[Params, Params, Views], Params]  # the gradient, the weights at which it was taken


@dataclass(frozen=True)
class Augmentation:
    """`draw(B, generator)` → numbers [B, ...]; `apply(x [B, ...], numbers)` → the bent batch, row by row."""

    draw: Callable[[int, torch.Generator], Tensor]
    apply: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return self.apply(x, self.draw(len(x), generator))


@dataclass(frozen=True)
class ClientTask:
    """What every client of a round minimises in a stretch: the objective, and how its gradient is bent
    before the step.
    """

    objective: Objective
    solver: Solver
    part: Part = "all"
    correct: Correct | None = None
    gates: tuple[str, ...] = ()  # companions that `update_gates` moves (Personal.update_gates)
    update_gates: UpdateGates | None = None
    jointly: bool = False  # whether weights and companion are clipped by one norm of both
    rule: LocalSolver | None = None  # trains in place of SGD
    draws: Mapping[str, Term] = field(default_factory=dict)  # terms that need random numbers, by slot
    notes: Mapping[str, Term] = field(
        default_factory=dict
    )  # terms that note something at every step, by slot
    cross_entropy_only: bool = False  # whether the objective is the cross-entropy and nothing else


@dataclass(frozen=True)
class TrainingPhase:
    """One client's part: where it starts, its batches (indices into its data), its memories, its random
    streams.
    """

    start: State
    batches: Sequence[Tensor]
    data: ClientData
    views: Views
    own: Params | None = None  # the companion, trained beside the network
    augment: torch.Generator | None = None
    dropout: torch.Generator | None = None
    drawn: Mapping[str, torch.Generator] = field(default_factory=dict)


Execute = Callable[[Network, ClientTask, Sequence[TrainingPhase], Augmentation | None], list[Trained]]


def with_draws(views: Views, drawn: Mapping[str, Tensor]) -> Views:
    """The views of one step: each term's random numbers in its own context."""
    return (
        {**views, **{slot: views[slot].replace(drawn=value) for slot, value in drawn.items()}}
        if drawn
        else views
    )


def draws_of(task: ClientTask, stretch: TrainingPhase, batch: int) -> dict[str, Tensor]:
    """One step's random numbers of the terms that want any, from the client's own streams."""
    made = {
        slot: one.draw(batch, stretch.views[slot], stretch.drawn[slot]) for slot, one in task.draws.items()
    }
    return {slot: value for slot, value in made.items() if value is not None}


def notes_of(task: ClientTask, f: Forward, views: Views) -> dict[str, Tensor]:
    """What the terms note of one step, before it is taken; without gradient."""
    with torch.no_grad():
        made = {slot: one.note(f, views[slot]) for slot, one in task.notes.items()}
    return {slot: value for slot, value in made.items() if value is not None}


def summed(total: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Two sums of notes as one, slot by slot."""
    return {
        **total,
        **{slot: total[slot] + value if slot in total else value for slot, value in more.items()},
    }

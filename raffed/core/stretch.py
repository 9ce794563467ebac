"""A stretch of one client's training as data, and its execution one client after the other; `stacked.py` has the other way.

A round is a few stretches per client: the shared passes, then private training. What an execution needs to know of one
stands in `Stretch`; what is minimised stands in `Task`, the same for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from raffed.core.context import ClientData, Context, Forward
from raffed.core.method import LocalSolver, Part, Term
from raffed.core.network import Network
from raffed.core.params import Params, State
from raffed.core.sgd import Beside, Solver, Trained, Turn, sgd, solve

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
class Task:
    """What every client of a round minimises in a stretch: the objective, and how its gradient is bent before the step."""

    objective: Objective
    solver: Solver
    part: Part = "all"
    correct: Correct | None = None
    dials: tuple[str, ...] = ()  # companions that `turn` moves (Personal.turn)
    turn: Turn | None = None
    jointly: bool = False  # whether weights and companion are clipped by one norm of both
    rule: LocalSolver | None = None  # trains in place of SGD
    draws: Mapping[str, Term] = field(default_factory=dict)  # terms that need random numbers, by slot
    notes: Mapping[str, Term] = field(default_factory=dict)  # terms that note something at every step, by slot
    plain: bool = False  # whether the objective is the cross-entropy and nothing else


@dataclass(frozen=True)
class Stretch:
    """One client's part: where it starts, its batches (indices into its data), its memories, its random streams."""

    start: State
    batches: Sequence[Tensor]
    data: ClientData
    views: Views
    own: Params | None = None  # the companion, trained beside the network
    augment: torch.Generator | None = None
    dropout: torch.Generator | None = None
    drawn: Mapping[str, torch.Generator] = field(default_factory=dict)


Execute = Callable[[Network, Task, Sequence[Stretch], Augmentation | None], list[Trained]]


def with_draws(views: Views, drawn: Mapping[str, Tensor]) -> Views:
    """The views of one step: each term's random numbers in its own context."""
    return {**views, **{slot: views[slot].but(drawn=value) for slot, value in drawn.items()}} if drawn else views


def draws_of(task: Task, stretch: Stretch, batch: int) -> dict[str, Tensor]:
    """One step's random numbers of the terms that want any, from the client's own streams."""
    made = {slot: one.draw(batch, stretch.views[slot], stretch.drawn[slot]) for slot, one in task.draws.items()}
    return {slot: value for slot, value in made.items() if value is not None}


def notes_of(task: Task, f: Forward, views: Views) -> dict[str, Tensor]:
    """What the terms note of one step, before it is taken; without gradient."""
    with torch.no_grad():
        made = {slot: one.note(f, views[slot]) for slot, one in task.notes.items()}
    return {slot: value for slot, value in made.items() if value is not None}


def summed(total: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Two sums of notes as one, slot by slot."""
    return {**total, **{slot: total[slot] + value if slot in total else value for slot, value in more.items()}}


def one_by_one(net: Network, task: Task, stretches: Sequence[Stretch], augmentation: Augmentation | None) -> list[Trained]:
    """The reference: each client's stretch by itself."""
    return [_alone(net, task, one, augmentation) for one in stretches]


def _alone(net: Network, task: Task, own: Stretch, augmentation: Augmentation | None) -> Trained:
    views, correct = own.views, task.correct
    generator = own.augment
    bend = None if augmentation is None or generator is None else lambda x: augmentation(x, generator)
    net.noise.generator = own.dropout
    noted: dict[str, Tensor] = {}

    def objective(f: Forward, step: int) -> Tensor:
        if task.notes:
            noted.update(summed(noted, notes_of(task, f, views)))
        return task.objective(f, with_draws(views, draws_of(task, own, len(f.y))))

    if task.rule is not None:
        return solve(net, task.rule, views["solver"], objective, own.data, own.batches, task.solver.clip_norm, bend)
    beside = None if own.own is None else Beside(own.own, task.dials, task.turn, task.jointly)
    live = net.leaves(task.part)

    def bent(g: Params) -> Params:
        assert correct is not None
        return correct(g, Params({name: t.detach() for name, t in live.items()}), views)

    done = sgd(
        net, own.start, objective, own.data, own.batches, task.solver,
        part=task.part, correct=None if correct is None else bent, augment=bend, beside=beside,
        plain=task.plain,
    )  # fmt: skip
    return replace(done, noted=noted)

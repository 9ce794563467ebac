"""The shared objective of a method: the loss of its head plus the method's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.context import ClientData, Forward
from raffed.core.ingredients import Head, Personal, Term
from raffed.core.ingredients.personal import in_words
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.training.sgd import Solver
from raffed.core.training.task import ClientTask, TrainingPhase, Views, draws_of, with_draws


def shared_objective(m: Method, views: Views) -> Callable[[Forward, int], Tensor]:
    """Return one client's objective: the loss of the head, by default CE(head(logits), y), + Σ terms.

    Terms get random numbers from their own streams.
    """
    task = shared_task(m, Pass(), Solver(0.0, 0.0, 0.0))
    own = TrainingPhase(
        State(Params({}), Params({})),
        (),
        ClientData(*[torch.empty(0)] * 3),
        views,
        drawn=term_streams(task.draws, views),
    )
    return lambda f, step: task.objective(f, with_draws(views, draws_of(task, own, len(f.y))))


@dataclass(frozen=True)
class ObjectiveParts:
    """The shared objective of a method, taken apart.

    Attributes:
        head: The head, or None for the cross-entropy of the network's own logits.
        terms: Terms by slot.
        personal: The personal ingredient, if it adds something.
        smoothing: Label smoothing ε of the cross-entropy, in [0, 1].
    """

    head: Head | None
    terms: tuple[tuple[str, Term], ...]
    personal: Personal | None
    smoothing: float

    @property
    def empty(self) -> bool:
        """Whether nothing is added to the first loss."""
        return not self.terms and (self.personal is None or type(self.personal).loss is Personal.loss)

    def base(self, f: Forward, views: Views) -> Tensor:
        """Return the loss to which the others are added, by default CE(head(logits), y)."""
        if self.head is None:
            return cross_entropy(f.logits, f.y, self.smoothing)
        return self.head.loss(f, views["head"])

    def added(self, f: Forward, views: Views) -> dict[str, Tensor]:
        """Return what is added to it, each with its weight, by names such as "proximal" and "intra_class"."""
        found = {in_words(type(one).__name__): one.loss(f, views[slot]) for slot, one in self.terms}
        own = {} if self.personal is None else self.personal.loss_parts(f, views["personal"])
        return {**found, **own}

    def whole(self, f: Forward, views: Views) -> Tensor:
        """Return the objective."""
        loss = self.base(f, views)
        for slot, one in self.terms:
            loss = loss + one.loss(f, views[slot])
        extra = None if self.personal is None else self.personal.loss(f, views["personal"])
        return loss if extra is None else loss + extra


def objective_parts(m: Method, label_smoothing: float, *, cross_entropy_only: bool = False) -> ObjectiveParts:
    """Return the parts of a method's shared objective.

    Args:
        m: The method.
        label_smoothing: Label smoothing of the run. A head may refuse it.
        cross_entropy_only: Whether the pass leaves out everything but the first loss.
    """
    smoothing = 0.0 if m.head and not m.head.smooths else label_smoothing
    if cross_entropy_only:
        return ObjectiveParts(m.head, (), None, smoothing)
    terms = tuple((slot, one) for slot, one in m.ingredients() if isinstance(one, Term))
    return ObjectiveParts(m.head, terms, m.personal, smoothing)


def shared_task(m: Method, one: Pass, solver: Solver) -> ClientTask:
    correction = m.correction
    correct = (
        None if correction is None else lambda g, w, views: correction.gradient_at(g, w, views["correction"])
    )
    gates, update_gates, jointly = (
        (m.personal.gates, m.personal.update_gates, m.personal.clips_jointly)
        if m.personal
        else ((), None, False)
    )
    draws = {} if one.cross_entropy_only else terms_that_draw(m)
    notes = {} if one.cross_entropy_only else _notes(m)
    return ClientTask(
        objective_parts(m, solver.label_smoothing, cross_entropy_only=one.cross_entropy_only).whole,
        solver,
        one.part,
        correct,
        gates,
        update_gates,
        jointly,
        m.solver,
        draws,
        notes,
        _is_plain(m, one) and not solver.label_smoothing,
        repeats=steps_repeat(m) and not gates,
    )


def steps_repeat(m: Method) -> bool:
    """Return whether all steps of a client's phase are known to be the same operations on tensors.

    It is known of raffed's own ingredients. Those of others may keep something between two steps.
    """
    own = all(type(one).__module__.startswith("raffed.") for _, one in m.ingredients())
    return own and m.criterion is None


def _is_plain(m: Method, one: Pass) -> bool:
    """Return whether a shared pass minimises only the cross-entropy of the network's own logits."""
    added = any(isinstance(part, Term) for _, part in m.ingredients()) or (
        m.personal is not None and type(m.personal).loss is not Personal.loss
    )
    return m.head is None and (one.cross_entropy_only or not added)


def terms_that_draw(m: Method) -> dict[str, Term]:
    """Return the terms that need random numbers, by slot."""
    return {slot: one for slot, one in m.ingredients() if isinstance(one, Term) and one.purpose is not None}


def _notes(m: Method) -> dict[str, Term]:
    """Return the terms that note something in every step, by slot."""
    return {
        slot: one
        for slot, one in m.ingredients()
        if isinstance(one, Term) and type(one).note is not Term.note
    }


def term_streams(draws: Mapping[str, Term], views: Views) -> dict[str, torch.Generator]:
    """Return a client's random streams for the terms that need random numbers."""
    return {
        slot: seeds.generator(v.run_seed, one.purpose, v.round, v.client)
        for slot, one in draws.items()
        for v in [views[slot]]
        if one.purpose is not None
    }

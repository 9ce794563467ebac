"""The shared objective of a method: the loss of its head plus the method's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.context import ClientData, Forward
from raffed.core.ingredients import Personal, Term
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.training.sgd import Solver
from raffed.core.training.task import ClientTask, Objective, TrainingPhase, Views, draws_of, with_draws


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


def _objective(m: Method, cross_entropy_only: bool, smoothing: float) -> Objective:
    head, personal = m.head, None if cross_entropy_only else m.personal
    terms = (
        [] if cross_entropy_only else [(slot, one) for slot, one in m.ingredients() if isinstance(one, Term)]
    )

    def objective(f: Forward, views: Views) -> Tensor:
        loss = cross_entropy(f.logits, f.y, smoothing) if head is None else head.loss(f, views["head"])
        for slot, one in terms:
            loss = loss + one.loss(f, views[slot])
        extra = None if personal is None else personal.loss(f, views["personal"])
        return loss if extra is None else loss + extra

    return objective


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
        _objective(
            m, one.cross_entropy_only, 0.0 if m.head and not m.head.smooths else solver.label_smoothing
        ),
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
    )


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

"""The shared objective of a method: the loss of its head plus the method's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.context import ClientData, Forward
from raffed.core.ingredients import Correction, Personal, Term
from raffed.core.ingredients.results import is_raffeds
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.training.first_step import FirstStep
from raffed.core.training.objective_parts import objective_parts
from raffed.core.training.stepping import Solver
from raffed.core.training.task import (
    AfterStep,
    ClientTask,
    Correct,
    TrainingPhase,
    Views,
    draws_of,
    with_draws,
)


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


def shared_task(m: Method, one: Pass, solver: Solver) -> ClientTask:
    gates, update_gates, jointly = (
        (m.personal.gates, m.personal.update_gates, m.personal.clips_jointly)
        if m.personal
        else ((), None, False)
    )
    draws = {} if one.cross_entropy_only else terms_that_draw(m)
    notes = {} if one.cross_entropy_only else _notes(m)
    parts = objective_parts(m, solver.label_smoothing, cross_entropy_only=one.cross_entropy_only)
    looked_at = [part for part in (parts.head, parts.personal, *(term for _, term in parts.terms)) if part]
    return ClientTask(
        parts.whole if all(is_raffeds(type(part)) for part in looked_at) else FirstStep(parts),
        solver,
        one.part,
        _correct(m),
        _after_step(m),
        gates,
        update_gates,
        jointly,
        m.solver,
        draws,
        notes,
        _is_plain(m, one) and not solver.label_smoothing,
        repeats=steps_repeat(m) and not gates,
    )


def _correct(m: Method) -> Correct | None:
    """Return how the gradient is changed before each step, or None."""
    one = m.correction
    if one is None or not (_changes(one, "gradient") or _changes(one, "gradient_at")):
        return None

    def correct(g: Params, w: Params, views: Views) -> Params:
        return one.gradient_at(g, w, views["correction"])

    return correct


def _after_step(m: Method) -> AfterStep | None:
    """Return how the weights are moved after each step, or None."""
    one = m.correction
    if one is None or not _changes(one, "after_step"):
        return None

    def after_step(w: Params, lr: float | Tensor, views: Views) -> Params:
        return one.after_step(w, lr, views["correction"])

    return after_step


def _changes(one: Correction, hook: str) -> bool:
    """Return whether a correction has a hook of its own."""
    return getattr(type(one), hook) is not getattr(Correction, hook)


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


__all__ = [
    "shared_objective",
    "shared_task",
    "steps_repeat",
    "term_streams",
    "terms_that_draw",
]

"""The shared objective of a method: the loss of its head plus the method's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch

from raffed.core import seeds
from raffed.core.context import Forward
from raffed.core.ingredients import Correction, Head, Ingredient, Personal, Term
from raffed.core.ingredients.base import fault, is_raffeds
from raffed.core.ingredients.kinds import in_words
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Pass
from raffed.core.training.task import (
    AfterStep,
    ClientTask,
    Correct,
    Solver,
    Views,
)

# The shared objective of a method, taken apart: the loss of its head, its terms, its personal ingredient.


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
        parts = {in_words(type(term).__name__): term.loss(f, views[slot]) for slot, term in self.terms}
        personal = {} if self.personal is None else self.personal.loss_parts(f, views["personal"])
        return {**parts, **personal}

    def whole(self, f: Forward, views: Views) -> Tensor:
        """Return the objective."""
        loss = self.base(f, views)
        for slot, term in self.terms:
            loss = loss + term.loss(f, views[slot])
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
    terms = tuple((slot, term) for slot, term in m.ingredients() if isinstance(term, Term))
    return ObjectiveParts(m.head, terms, m.personal, smoothing)


# Whether what the user's own ingredients add to a loss has a gradient, so that it trains anything.
#
# No number is read from a device.


NO_GRADIENT = "returned a value without a gradient; compute it from f with torch, and do not detach it"


class FirstStep:
    """An objective that notes in its first step which ingredients of the user's own have a gradient.

    Every later step runs the same functions on tensors of the same kind, so nothing is noted there.

    Args:
        parts: The parts of the objective.

    Attributes:
        gradients: Name of a term or a head → whether its value had a gradient in the first step. A term that
            returned the number 0, which says that it adds nothing, is left out. Empty before the first step.

    Raises:
        UserCodeError: A head leaves the objective without a gradient. The message begins with its place.
    """

    def __init__(self, parts: ObjectiveParts) -> None:
        self._parts = parts
        self._call = self._first
        self.gradients: dict[str, bool] = {}

    def __call__(self, f: Forward, views: Views) -> Tensor:
        return self._call(f, views)

    def _first(self, f: Forward, views: Views) -> Tensor:
        parts, self._call = self._parts, self._parts.whole
        loss = parts.base(f, views)
        self._note(parts.head, loss)
        added: list[tuple[Ingredient, Tensor | None]] = [
            (term, term.loss(f, views[slot])) for slot, term in parts.terms
        ]
        if parts.personal is not None:
            added.append((parts.personal, parts.personal.loss(f, views["personal"])))
        for ingredient, value in added:
            if value is not None:
                self._note(ingredient, value)
                loss = loss + value
        if parts.head is not None:
            trainable(parts.head, "logits" if type(parts.head).loss is Head.loss else "loss", loss)
        return loss

    def _note(self, ingredient: Ingredient | None, value: Tensor | float) -> None:
        if ingredient is not None and not is_raffeds(type(ingredient)) and isinstance(value, Tensor):
            self.gradients[type(ingredient).__name__] = has_gradient(value)


def trainable(ingredient: Ingredient, hook: str, value: Any) -> Any:
    """Return the value of a loss that is minimised alone, so that it must have a gradient.

    Raises:
        UserCodeError: It is that of a user's own ingredient, and has none.
    """
    if not is_raffeds(type(ingredient)) and not (isinstance(value, Tensor) and has_gradient(value)):
        raise fault(ingredient, hook, NO_GRADIENT)
    return value


def has_gradient(value: Tensor) -> bool:
    """Return whether a value depends on parameters that are trained, also inside vmap and torch.func.grad."""
    while not value.requires_grad and _functorch.is_functorch_wrapped_tensor(value):
        value = _functorch.get_unwrapped(value)
    return value.requires_grad


def shared_task(m: Method, pass_: Pass, solver: Solver) -> ClientTask:
    gates, update_gates, jointly = (
        (m.personal.gates, m.personal.update_gates, m.personal.clips_jointly)
        if m.personal
        else ((), None, False)
    )
    parts = objective_parts(m, solver.label_smoothing, cross_entropy_only=pass_.cross_entropy_only)
    looked_at = [part for part in (parts.head, parts.personal, *(term for _, term in parts.terms)) if part]
    return ClientTask(
        parts.whole if all(is_raffeds(type(part)) for part in looked_at) else FirstStep(parts),
        solver,
        pass_.part,
        _correct(m.correction),
        _after_step(m.correction),
        gates,
        update_gates,
        jointly,
        m.solver,
        {slot: term for slot, term in parts.terms if term.purpose is not None},
        {slot: term for slot, term in parts.terms if type(term).note is not Term.note},
        m.head is None and (pass_.cross_entropy_only or parts.empty) and not solver.label_smoothing,
        repeats=m.steps_repeat and not gates,
    )


def _correct(correction: Correction | None) -> Correct | None:
    """Return how the gradient is changed before each step, or None."""
    if correction is None or not (_changes(correction, "gradient") or _changes(correction, "gradient_at")):
        return None

    def correct(g: Params, w: Params, views: Views) -> Params:
        return correction.gradient_at(g, w, views["correction"])

    return correct


def _after_step(correction: Correction | None) -> AfterStep | None:
    """Return how the weights are moved after each step, or None."""
    if correction is None or not _changes(correction, "after_step"):
        return None

    def after_step(w: Params, lr: float | Tensor, views: Views) -> Params:
        return correction.after_step(w, lr, views["correction"])

    return after_step


def _changes(correction: Correction, hook: str) -> bool:
    """Return whether a correction has a hook of its own."""
    return getattr(type(correction), hook) is not getattr(Correction, hook)


def term_streams(draws: Mapping[str, Term], views: Views) -> dict[str, torch.Generator]:
    """Return a client's random streams for the terms that need random numbers."""
    return {
        slot: seeds.generator(v.run_seed, term.purpose, v.round, v.client)
        for slot, term in draws.items()
        for v in [views[slot]]
        if term.purpose is not None
    }

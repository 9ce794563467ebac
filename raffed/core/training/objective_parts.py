"""The shared objective of a method, taken apart: the loss of its head, its terms, its personal ingredient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from raffed.core.context import Forward
from raffed.core.ingredients import Head, Personal, Term
from raffed.core.ingredients.personal import in_words
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.training.task import Views


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


__all__ = ["ObjectiveParts", "objective_parts"]

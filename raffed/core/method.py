"""A federated-learning algorithm as a recipe: a frozen record of named slots filled with ingredients
(docs/design.md §9).

Hooks are named after lines of the papers' algorithm boxes. What runs inside the training loop (`loss`,
`logits`, `gradient`, `private_loss`) is a dense function of tensors, so that the same line runs for one
client and, under vmap, for many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from raffed.core.ingredients import Correction, Head, Ingredient, LocalSolver, Personal, Term
from raffed.core.parts import SHARE_ALL, ParameterSplit, Pass
from raffed.core.server import Assign, Mean, ServerRule
from raffed.errors import UsageError


@dataclass(frozen=True)
class Method:
    """A federated-learning algorithm as a recipe. Plain data: no tensor, no device, no Ray."""

    name: str
    terms: tuple[Term, ...] = ()
    head: Head | None = None
    correction: Correction | None = None
    solver: LocalSolver | None = None  # None: SGD
    message: Ingredient | None = (
        None  # what is sent besides or in place of the trained weights; no part of the objective
    )
    split: ParameterSplit = SHARE_ALL
    passes: tuple[Pass, ...] = (Pass(),)
    personal: Personal | None = None
    mean: Mean = field(default_factory=Mean)
    server: ServerRule = field(default_factory=Assign)
    strengths: tuple[tuple[str, float], ...] = field(
        default=(), compare=False
    )  # to be smaller where training diverges

    def __post_init__(self) -> None:
        names = [type(t).__name__ for t in self.terms]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"{self.name}: two terms of class {name}; their memories would share one slot"
                )
        if self.solver is not None and any(type(term).note is not Term.note for term in self.terms):
            rule = type(self.solver).__name__
            raise UsageError(f"{self.name}: a term that notes something at every step needs SGD, not {rule}")
        if (
            self.correction is not None
            and self.correction.plain_sgd
            and any(p.momentum != 0.0 for p in self.passes)
        ):
            raise UsageError(
                f"{self.name}: {type(self.correction).__name__} needs plain SGD (momentum 0 in every pass): "
                f"its control "
                "variates divide the displacement by the summed learning rates, which momentum breaks"
            )

    @property
    def has_global(self) -> bool:
        """Whether the server holds a whole model; without one there is no accuracy on the global test set."""
        return self.split.personal == "none"

    @cached_property
    def keeps_state(self) -> bool:
        """Whether clients keep anything between rounds: own layers, own buffers, or an ingredient's
        memory.
        """
        own = self.split.personal != "none" or self.split.buffers == "local"
        return own or any(
            type(one).client_init is not Ingredient.client_init for _, one in self.ingredients()
        )

    def ingredients(self) -> tuple[tuple[str, Ingredient], ...]:
        """(slot name, ingredient); the slot name is the key of its memory and messages everywhere."""
        return self._ingredients

    @cached_property
    def _ingredients(self) -> tuple[tuple[str, Ingredient], ...]:
        slots: tuple[tuple[str, Ingredient | None], ...] = (
            ("head", self.head),
            ("correction", self.correction),
            ("solver", self.solver),
            ("message", self.message),
            ("personal", self.personal),
        )
        terms = tuple((f"term-{type(term).__name__}", term) for term in self.terms)
        return *((slot, one) for slot, one in slots if one is not None), *terms


Factory = Callable[..., Method]

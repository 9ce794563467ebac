"""Whether what the user's own ingredients add to a loss has a gradient, so that it trains anything.

No number is read from a device.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch._C import _functorch

from raffed.core.context import Forward
from raffed.core.ingredients import Head, Ingredient
from raffed.core.ingredients.results import fault, is_raffeds
from raffed.core.training.objective_parts import ObjectiveParts
from raffed.core.training.task import Views

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
            (one, one.loss(f, views[slot])) for slot, one in parts.terms
        ]
        if parts.personal is not None:
            added.append((parts.personal, parts.personal.loss(f, views["personal"])))
        for one, value in added:
            if value is not None:
                self._note(one, value)
                loss = loss + value
        if parts.head is not None:
            trainable(parts.head, "logits" if type(parts.head).loss is Head.loss else "loss", loss)
        return loss

    def _note(self, one: Ingredient | None, value: Tensor | float) -> None:
        if one is not None and not is_raffeds(type(one)) and isinstance(value, Tensor):
            self.gradients[type(one).__name__] = has_gradient(value)


def trainable(one: Ingredient, hook: str, value: Any) -> Any:
    """Return the value of a loss that is minimised alone, so that it must have a gradient.

    Raises:
        UserCodeError: It is that of a user's own ingredient, and has none.
    """
    if not is_raffeds(type(one)) and not (isinstance(value, Tensor) and has_gradient(value)):
        raise fault(one, hook, NO_GRADIENT)
    return value


def has_gradient(value: Tensor) -> bool:
    """Return whether a value depends on parameters that are trained, also inside vmap and torch.func.grad."""
    while not value.requires_grad and _functorch.is_functorch_wrapped_tensor(value):
        value = _functorch.get_unwrapped(value)
    return value.requires_grad


__all__ = ["FirstStep", "has_gradient", "trainable"]

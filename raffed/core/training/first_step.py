"""What the ingredients of the user's own return in a step of training, looked at in the first step only.

Every later step runs the same functions on tensors of the same kind, so nothing is looked at there. Methods
that consist of raffed's own ingredients are never looked at. No number is read from a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch._C import _functorch

from raffed.config.slots import described
from raffed.core.context import Forward
from raffed.core.ingredients import Head, Ingredient
from raffed.core.ingredients.results import fault, is_raffeds
from raffed.core.params import Params
from raffed.core.training.objective_parts import ObjectiveParts
from raffed.core.training.task import Views

T = TypeVar("T")
NO_GRADIENT = "returned a value without a gradient; compute it from f with torch, and do not detach it"
NOTHING_ADDED = "return 0 where it adds nothing"


class FirstStep:
    """An objective whose ingredients' values are looked at in its first step.

    Args:
        parts: The parts of the objective.

    Attributes:
        gradients: Name of a term or a head → whether its value had a gradient in the first step. A term that
            returned the number 0, which says that it adds nothing, is left out. Empty before the first step.

    Raises:
        UserCodeError: A value is not what it must be. The message begins with the file and line of the hook.
    """

    def __init__(self, parts: ObjectiveParts) -> None:
        self._parts = parts
        self._call = self._first
        self.gradients: dict[str, bool] = {}

    def __call__(self, f: Forward, views: Views) -> Tensor:
        return self._call(f, views)

    def _first(self, f: Forward, views: Views) -> Tensor:
        parts, self._call = self._parts, self._parts.whole
        loss = self._base(f, views)
        for slot, one in parts.terms:
            loss = loss + self._added(one, one.loss(f, views[slot]))
        extra = None if parts.personal is None else parts.personal.loss(f, views["personal"])
        if parts.personal is not None and extra is not None:
            loss = loss + self._added(parts.personal, extra)
        if parts.head is not None and not is_raffeds(type(parts.head)) and not has_gradient(loss):
            raise fault(parts.head, self._hook(parts.head), NO_GRADIENT)
        return loss

    def _base(self, f: Forward, views: Views) -> Tensor:
        """Return the loss to which the others are added, as `ObjectiveParts.base` computes it."""
        head = self._parts.head
        if head is None or is_raffeds(type(head)):
            return self._parts.base(f, views)
        k, hook = views["head"], self._hook(head)
        if hook == "loss":
            loss = looked_at(head, hook, head.loss(f, k))
            self.gradients[type(head).__name__] = has_gradient(loss)
            return loss
        changed = head.logits(f.logits, k)
        if not isinstance(changed, Tensor) or changed.shape != f.logits.shape:
            raise fault(
                head,
                "logits",
                f"returned {_shown(changed)}; it must return logits {_shape(f.logits)}, as given",
            )
        loss = k.loss_of(changed, f.y, head.smooths)
        self.gradients[type(head).__name__] = has_gradient(loss)
        return loss

    @staticmethod
    def _hook(head: Head) -> str:
        return "logits" if type(head).loss is Head.loss else "loss"

    def _added(self, one: Ingredient, value: Tensor | float) -> Tensor | float:
        if is_raffeds(type(one)):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
            return value
        self.gradients[type(one).__name__] = has_gradient(looked_at(one, "loss", value, NOTHING_ADDED))
        return value


def looked_at(one: Ingredient, hook: str, value: Any, remedy: str = "") -> Tensor:
    """Return the value of a loss, which must be a tensor without dimensions.

    Raises:
        UserCodeError: It is something else.
    """
    if isinstance(value, Tensor) and not value.dim() and value.is_floating_point():
        return value
    if isinstance(value, int | float):
        why = (
            f"returned the number {value!r}, which has no gradient; compute the value from f and k with torch"
        )
    else:
        advice = "; take .mean() or .sum()" if isinstance(value, Tensor) and value.dim() else ""
        why = f"returned {_shown(value)}; it must return a tensor of one number, without dimensions{advice}"
    raise fault(one, hook, f"{why}; {remedy}" if remedy and not isinstance(value, Tensor) else why)


def trainable(one: Ingredient, hook: str, value: Any) -> Tensor:
    """Return the value of a loss that is minimised alone, so that it must have a gradient.

    Raises:
        UserCodeError: It has none, or is not a tensor without dimensions.
    """
    found = looked_at(one, hook, value)
    if not has_gradient(found):
        raise fault(one, hook, NO_GRADIENT)
    return found


def same_names(one: Ingredient, hook: str, made: Any, given: Params, what: str = "a gradient") -> Params:
    """Return a changed gradient or changed weights, with the names and shapes of those that were given.

    Raises:
        UserCodeError: It is something else.
    """
    if not isinstance(made, Params):
        raise fault(one, hook, f"returned {described(made)}; it must return {what}, as Params")
    odd = sorted({*made.names} ^ {*given.names})
    odd = odd or [name for name in given.names if made[name].shape != given[name].shape]
    if odd:
        raise fault(
            one, hook, f"returned {what} with other names or shapes than it was given: {', '.join(odd[:4])}"
        )
    return made


def at_first(function: Callable[..., T], look: Callable[..., T]) -> Callable[..., T]:
    """Return a function whose first result is looked at.

    Args:
        function: The function.
        look: Called with the first result and with what the function was called with. It returns the result,
            or raises an error.
    """
    done = False

    def call(*given: Any) -> T:
        nonlocal done
        made = function(*given)
        if done:
            return made
        done = True
        return look(made, *given)

    return call


def has_gradient(value: Tensor) -> bool:
    """Return whether a value depends on parameters that are trained, also inside vmap and torch.func.grad."""
    while not value.requires_grad and _functorch.is_functorch_wrapped_tensor(value):
        value = _functorch.get_unwrapped(value)
    return value.requires_grad


def _shape(value: Tensor) -> str:
    return f"[{', '.join(map(str, value.shape))}]"


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {value.dtype}"
        return f"a tensor {_shape(value)}{kind}"
    return described(value)


__all__ = ["FirstStep", "at_first", "has_gradient", "looked_at", "same_names", "trainable"]

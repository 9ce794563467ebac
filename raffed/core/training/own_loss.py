"""Losses of the user's own, by reference: functions of logits and labels in the place of the cross-entropy.

This module imports neither torch nor Ray until a loss is tried.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from raffed.config.validation import Value, check_call
from raffed.errors import UsageError
from raffed.own.names import OwnFunction, marked, own_function
from raffed.own.user_code import user_errors

if TYPE_CHECKING:
    from torch import Tensor

    from raffed.core.losses import Criterion

GROUP: Final = "raffed.losses"  # of entry points
KIND: Final = "loss"
COUNTS: Final = "class_counts"
TRIED: Final = 4  # samples of the batch on which a loss is tried
F = TypeVar("F")


def loss(function: F) -> F:
    """Mark a function as a loss. A function in one's own files needs no mark.

    Args:
        function: Function from (logits [B, C], labels [B]) to a loss for each sample [B], or to their mean
            []. If it has a parameter `class_counts`, it also gets the client's training samples of each class
            [C].

    Returns:
        The function, unchanged.

    Example:
        @raffed.loss
        def focal(logits, labels, gamma: float = 2.0):
            nll = -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
            return (1 - (-nll).exp()) ** gamma * nll
    """
    return marked(function, KIND, True)


def loss_function(name: str) -> OwnFunction:
    """Return where a loss is.

    Raises:
        UsageError: The name is neither an entry point nor a reference.
    """
    return own_function(KIND, name, GROUP)


def criterion_of(name: str, args: Mapping[str, Value]) -> Criterion:
    """Return a loss, with its arguments.

    Args:
        name: A reference or an entry point.
        args: Its arguments, other than logits, labels and class counts.

    Raises:
        UsageError: There is no such function, or the arguments do not fit.
    """
    from raffed.core.losses import Criterion

    reference = loss_function(name)
    function = reference.load()
    wanted = list(inspect.signature(function).parameters)
    if len(wanted) < 2 or COUNTS in wanted[:2]:
        raise UsageError(
            f"{reference.where}: a loss takes logits and labels first; {name} takes "
            f"{', '.join(wanted) or 'nothing'}"
        )
    check_call(f"loss {name!r}", function, (*wanted[:2], COUNTS), args, "--loss-arg")
    return Criterion(functools.partial(function, **args), name, COUNTS in wanted)


def check_loss(name: str, args: Mapping[str, Value], classes: int, *, stacked: bool) -> None:
    """Try a loss on a small batch, so that one that cannot be trained is refused before anything starts.

    Args:
        name: A reference or an entry point.
        args: Its arguments.
        classes: Number of classes C.
        stacked: Whether clients are stacked, so that the loss is called under vmap.

    Raises:
        UsageError: The function does not give a finite loss with a gradient, or it draws random numbers.
        UserCodeError: The function raised an error.
    """
    import torch
    from torch.func import vmap

    criterion, reference = criterion_of(name, args), loss_function(name)
    logits = torch.linspace(-1.0, 1.0, TRIED * classes).view(TRIED, classes).requires_grad_()
    y, counts = torch.arange(TRIED) % classes, torch.arange(classes) + 1
    before = torch.get_rng_state()
    with user_errors(reference.where):
        given = {COUNTS: counts} if criterion.counted else {}
        value = criterion.function(logits, y, **given)
        why = _fault(value)
        if not why and stacked:
            together: Callable[..., Tensor] = vmap(criterion)
            together(*(torch.stack([tensor, tensor]) for tensor in (logits, y, counts)))
    if not why and not torch.equal(before, torch.get_rng_state()):
        why = "draws from torch's global generator, so that no run could be repeated"
    if why:
        raise UsageError(f"{reference.where}: the loss {name} {why}")


def _fault(value: Tensor | float) -> str:
    """Return why a value cannot be the loss of the batch that is tried; empty if it can."""
    import torch

    if not isinstance(value, torch.Tensor):
        return f"gave a {type(value).__name__}; it must give a tensor"
    if value.shape not in ((), (TRIED,)):
        shape = tuple(value.shape)
        return f"gave the shape {shape} for {TRIED} samples; it must give ({TRIED},) or their mean, ()"
    if not value.requires_grad:
        return "gave a value without a gradient; compute it from the logits with torch"
    if not bool(value.isfinite().all()):
        return f"gave {value.detach().tolist()}, which is not finite"
    return ""

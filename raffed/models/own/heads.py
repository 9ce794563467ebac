"""Find the head of a module: the linear layer whose output is the scores that the module returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raffed.errors import RaffedError, UsageError
from raffed.models.net import Net
from raffed.own.user_code import UserCodeError, where_raised


@dataclass(frozen=True)
class ModelInputs:
    """What the inputs of a network look like.

    Attributes:
        shape: Shape of one input, without the axis of the samples. It may be any shape, such as (3, 32, 32)
            for images, (13,) for a row of a table, or (20,) for a sequence of 20 ids.
        dtype: "float32", or "int64" for ids.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    def batch(self, n: int) -> Tensor:
        """Return n inputs [n, *shape] that are always the same: random floats in [0, 1), or the id 0."""
        if not self.is_float:
            return torch.zeros(n, *self.shape, dtype=torch.int64)
        return torch.rand(n, *self.shape, generator=torch.Generator().manual_seed(0))

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}"


def find_head(module: nn.Module, x: Tensor, title: str) -> str:
    """Return the name of the linear layer that a module calls last.

    Args:
        module: A module from inputs [B, ...] to scores [B, C]. It is called once, in evaluation mode.
        x: A batch of inputs.
        title: How messages name the module.

    Raises:
        UsageError: The module returns something other than one tensor, or calls no linear layer.
    """
    called: list[str] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, ___, name=name: called.append(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        scores_of(module, x, title)
    finally:
        for hook in hooks:
            hook.remove()
    if not called:
        raise UsageError(
            f"{title}: it calls no nn.Linear; let it end in an nn.Linear and return its output, without "
            "softmax, or name that layer by head="
        )
    return called[-1]


def scores_of(module: nn.Module, x: Tensor, title: str, *, training: bool = False) -> Tensor:
    """Return what a module makes of a batch in evaluation or training mode, without gradient.

    Raises:
        UsageError: It is not one tensor, or torch cannot compute it.
        UserCodeError: The user's own code raised an error.
    """
    modes = {layer: layer.training for layer in module.modules()}
    with torch.no_grad(), own_errors(f"{title} with inputs [{', '.join(map(str, x.shape))}]"):
        try:
            returned = module.train(training)(x)
        finally:
            for layer, training in modes.items():
                layer.training = training
    return one_tensor(returned[0] if isinstance(module, Net) else returned, title)


def one_tensor(scores: Tensor | tuple[Tensor, ...], title: str) -> Tensor:
    """Return the scores if they are one tensor.

    Raises:
        UsageError: They are something else, such as a tuple.
    """
    if not isinstance(scores, Tensor):
        raise UsageError(
            f"{title} returns a {type(scores).__name__}; it must return one tensor of scores [B, "
            f"C]: return the "
            f"output of the last nn.Linear alone (head= can name the layer)"
        )
    return scores


@contextmanager
def own_errors(title: str) -> Iterator[None]:
    """Report an error of the user's module in one line, beginning with the user's own file and line.

    Raises:
        UserCodeError: A line of the user's own code is on the way to the error.
        UsageError: The error comes from an installed library, such as torchvision.
    """
    try:
        yield
    except RaffedError:
        raise
    except Exception as error:
        text, place = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", where_raised(error, "")
        if "draws from torch's global generator" in text:
            raise UsageError(
                f"{place or title} draws random numbers by itself; use nn.Dropout layers, whose random "
                f"numbers raffed makes from the seed"
            ) from error
        if place:
            raise UserCodeError(f"{place}: {title}: {text}") from error
        raise UsageError(f"{title}: {text}") from error


__all__ = [
    "ModelInputs",
    "find_head",
    "one_tensor",
    "own_errors",
    "scores_of",
]

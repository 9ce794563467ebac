"""Dropout whose random numbers come from a client's own stream, for one client or for many stacked ones.

torch's layers draw from the global generator. It cannot give k stacked clients the numbers that each of them
would have drawn alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from raffed.errors import UsageError

_DROPOUT = nn.modules.dropout._DropoutNd


class Noise:
    """The source of random numbers for a network's dropout layers: a generator, or numbers drawn before."""

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None
        self.used: list[
            Tensor
        ] = []  # what this pass drew or was given, to be used again in another pass over the same batch
        self._given: list[Tensor] | None = None
        self._shapes: list[tuple[int, ...]] | None = None

    def take(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return uniform numbers in [0, 1) of a shape, on x's device."""
        if self._shapes is not None:
            self._shapes.append(shape)
            return x.new_ones(shape)
        if self._given is not None:
            self.used.append(self._given.pop(0))
            return self.used[-1]
        if self.generator is None:
            raise RuntimeError("dropout in training mode without a generator: set net.noise.generator")
        self.used += draw([shape], self.generator)
        return self.used[-1]

    @contextlib.contextmanager
    def given(self, drawn: list[Tensor]) -> Iterator[None]:
        """Make the layers use these numbers in order, inside the context."""
        self._given = list(drawn)
        try:
            yield
        finally:
            self._given = None
            self.used.clear()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[tuple[int, ...]]]:
        """Make the layers record the shapes that they need and drop nothing, inside the context."""
        shapes: list[tuple[int, ...]] = []
        self._shapes = shapes
        try:
            yield shapes
        finally:
            self._shapes = None


def draw(shapes: list[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
    """Return one client's uniform numbers for one step, on the generator's device."""
    return [torch.rand(shape, generator=generator, device=generator.device) for shape in shapes]


class StreamDropout(nn.Module):
    """Dropout with numbers u from `Noise`: x / (1 − p) if u ≥ p, and otherwise 0. In evaluation mode it is x.

    Args:
        p: Probability of dropping a number, in (0, 1).
        axes: How many leading axes of x have their own numbers. None means all, as in torch's Dropout. 2
            drops whole channels (Dropout1d, 2d, 3d). 1 drops whole samples (stochastic depth).
        noise: Where the numbers come from.
    """

    def __init__(self, p: float, axes: int | None, noise: Noise) -> None:
        super().__init__()
        self.p, self.axes, self._noise = p, axes, noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        axes = x.dim() if self.axes is None else self.axes
        shape = (*x.shape[:axes], *(1 for _ in x.shape[axes:]))
        return torch.where(self._noise.take(x, shape) >= self.p, x / (1 - self.p), 0.0)

    def __deepcopy__(self, memo: object) -> StreamDropout:
        return StreamDropout(self.p, self.axes, self._noise).train(self.training)


def replace_dropout(module: nn.Module, noise: Noise) -> bool:
    """Replace every dropout layer with 0 < p < 1 by a `StreamDropout`, and return whether there was one.

    Layers with p = 0 are left alone.

    Raises:
        UsageError: A recurrent layer or an attention layer has a dropout of its own. It would draw from
            torch's global generator.
    """
    replaced = False
    _refuse_hidden_dropout(module)
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # an object that is used twice, too
            if isinstance(child, StreamDropout):  # the module was copied from another network
                setattr(parent, name, StreamDropout(child.p, child.axes, noise))
                replaced = True
            elif isinstance(child, _DROPOUT) and child.p > 0:
                setattr(parent, name, StreamDropout(child.p, _axes(child), noise))
                replaced = True
    return replaced


def _refuse_hidden_dropout(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0:
            raise UsageError(
                f"{name}: the dropout = {layer.dropout} inside {type(layer).__name__} draws from torch's "
                f"global generator, so no run would be reproducible; set it to 0 and add an nn.Dropout layer"
            )


def _axes(layer: nn.modules.dropout._DropoutNd) -> int | None:
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout) or layer.p >= 1:
        raise TypeError(f"{type(layer).__name__}(p={layer.p}): it must be a dropout to zero with p in (0, 1)")
    if getattr(layer, "rows", False):
        return 1
    return 2 if isinstance(layer, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d) else None

"""Dropout whose random numbers come from outside: from a client's own stream, one client at a time or many stacked.

torch's layers draw from the global generator, which cannot give k stacked clients the numbers that each of them would
have drawn alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

_DROPOUT = nn.modules.dropout._DropoutNd
_KNOWN = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class Noise:
    """Where a network's dropout layers get uniform numbers from: a generator, or tensors that were drawn before."""

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None
        self._given: list[Tensor] | None = None
        self._shapes: list[tuple[int, ...]] | None = None

    def take(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Uniform numbers in [0, 1) of a shape, on x's device."""
        if self._shapes is not None:
            self._shapes.append(shape)
            return x.new_ones(shape)
        if self._given is not None:
            return self._given.pop(0)
        if self.generator is None:
            raise RuntimeError("dropout in training mode without a generator: set net.noise.generator")
        return draw([shape], self.generator)[0]

    @contextlib.contextmanager
    def given(self, drawn: list[Tensor]) -> Iterator[None]:
        """Inside, the layers take these numbers, in order."""
        self._given = list(drawn)
        try:
            yield
        finally:
            self._given = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[tuple[int, ...]]]:
        """Inside, the layers note what shapes they want and drop nothing."""
        self._shapes = shapes = []
        try:
            yield shapes
        finally:
            self._shapes = None


def draw(shapes: list[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
    """One step's uniform numbers of one client, on the generator's device."""
    return [torch.rand(shape, generator=generator, device=generator.device) for shape in shapes]


class StreamDropout(nn.Module):
    """x · 1[u ≥ p] / (1 − p) in training mode, u uniform and drawn by `Noise`; x in evaluation mode.

    `whole`: one number a channel instead of one an element (torch's Dropout1d, 2d, 3d).
    """

    def __init__(self, p: float, whole: bool, noise: Noise) -> None:
        super().__init__()
        self.p, self.whole, self._noise = p, whole, noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.whole else tuple(x.shape)
        kept = self._noise.take(x, shape) >= self.p
        return x * kept / (1 - self.p)

    def __deepcopy__(self, memo: object) -> StreamDropout:
        return StreamDropout(self.p, self.whole, self._noise).train(self.training)


def replace_dropout(module: nn.Module, noise: Noise) -> bool:
    """Put a `StreamDropout` in the place of every dropout layer with 0 < p < 1; whether there was one. p = 0 is left alone."""
    found = False
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, StreamDropout):  # a copy of a network's module
                setattr(parent, name, StreamDropout(child.p, child.whole, noise))
                found = True
            elif isinstance(child, _DROPOUT) and child.p > 0:
                if type(child) not in _KNOWN or child.p >= 1:
                    raise TypeError(f"{type(child).__name__}(p={child.p}): wanted Dropout, 1d, 2d or 3d with p in (0, 1)")
                setattr(parent, name, StreamDropout(child.p, type(child) is not nn.Dropout, noise))
                found = True
    return found

"""Where the tensors of a model lie in one flat buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from torch import Tensor

ALIGN = 16  # floats; tensors start on 64-byte boundaries, where CPU kernels are fastest


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in one flat float32 buffer. Gaps between tensors hold zeros.

    Attributes:
        names: Names of the tensors, in order.
        shapes: Their shapes, in the same order.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> Layout:
        return Layout(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def numel(self) -> int:
        """How many numbers the tensors have together, without gaps."""
        return sum(self.counts)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        starts, at = [], 0
        for count in self.counts:
            starts.append(at)
            at += -(-count // ALIGN) * ALIGN
        return tuple(starts)

    @cached_property
    def size(self) -> int:
        """Length of the flat buffer, with gaps."""
        return self.offsets[-1] + -(-self.counts[-1] // ALIGN) * ALIGN if self.names else 0

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the named tensors as views of `flat` [size]."""
        where = zip(self.names, self.shapes, self.counts, self.offsets, strict=True)
        return {name: flat[at : at + count].view(shape) for name, shape, count, at in where}
